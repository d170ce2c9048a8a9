package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// Transaction is the state that Init stores in the environment.
type Transaction struct {
	// Name is the name of the Docker network and a part of all other names.
	Name string `json:"name"`
	// Dir is the directory of the transaction. Memory is its directory in memory, or Dir.
	Dir    string `json:"dir"`
	Memory string `json:"memory"`
	// Workspace is the given workspace ([Config]). It is empty if the transaction has its own.
	Workspace string `json:"workspace,omitempty"`
	// Cgroup is the control group of all host steps. It is empty if there is none.
	Cgroup string `json:"cgroup,omitempty"`
	// WholeMachine allows paths outside of the workspace.
	WholeMachine bool `json:"whole_machine,omitempty"`
	// Supervisor starts the host steps. It is nil if the driver starts them itself.
	Supervisor *Supervisor `json:"supervisor,omitempty"`
	// Maker is the id of the driver that ran Init.
	Maker string `json:"maker,omitempty"`

	// Labels go on every resource of the transaction.
	Labels map[string]string `json:"-"`
}

// Supervisor is the process that starts the host steps of a transaction. The first host step starts it.
type Supervisor struct {
	// Dir is the directory of its socket.
	Dir string `json:"dir"`
	// User is the number of the user of steps that name none. It is empty for the delegate's user.
	User string `json:"user,omitempty"`
}

// WorkspaceDir returns the folder in which the steps of the transaction run.
func (t *Transaction) WorkspaceDir() string {
	if t.Workspace != "" {
		return t.Workspace
	}
	return filepath.Join(t.Dir, "workspace")
}

// NewTransaction names the directories of a transaction. It creates nothing.
func (d *Driver) NewTransaction(env *driver.Environment) *Transaction {
	tx := &Transaction{Name: recorded.NewName(env.ID), Maker: d.ID, Workspace: d.Config.Workspace, WholeMachine: d.Config.WholeMachine, Labels: labelsOf(env)}
	tx.Dir = filepath.Join(d.Config.WorkDir, tx.Name)
	tx.Memory = tx.Dir
	if d.Config.MemoryDir != "" {
		tx.Memory = filepath.Join(d.Config.MemoryDir, tx.Name)
	}
	return tx
}

// MakeDirectories creates the directories that the steps share. The two directories on record contain
// all others.
func (d *Driver) MakeDirectories(ctx context.Context, tx *Transaction, l driver.Ledger) error {
	dirs := []string{tx.Dir}
	if tx.Memory != tx.Dir {
		dirs = append(dirs, tx.Memory)
	}
	for _, dir := range dirs {
		// A directory in memory does not survive a crash of the machine.
		r := driver.Resource{Kind: KindDirectory, ID: dir, Labels: tx.Labels, Volatile: dir != tx.Dir}
		// Only the delegate's user can enter. The content is open to the user of any container.
		err := d.Gate.Create(ctx, l, r, func() error { return MakeDir(dir, 0o700) })
		if err != nil {
			return err
		}
		for _, sub := range []string{"volumes", "steps"} {
			if err := MakeDir(filepath.Join(dir, sub), 0o711); err != nil {
				return err
			}
		}
	}
	if tx.Workspace != "" {
		return nil
	}
	return MakeDir(tx.WorkspaceDir(), 0o777)
}

// OpenTransaction reads the state that Init stored.
func OpenTransaction(env *driver.Environment) (*Transaction, error) {
	if len(env.State) == 0 {
		return nil, fmt.Errorf("transaction %q: its init has not run on this driver", env.ID)
	}
	tx := &Transaction{Labels: labelsOf(env)}
	if err := json.Unmarshal(env.State, tx); err != nil {
		return nil, fmt.Errorf("transaction %q: read the driver's state: %w", env.ID, err)
	}
	if !recorded.IsName(tx.Name) || filepath.Base(tx.Dir) != tx.Name || filepath.Base(tx.Memory) != tx.Name {
		return nil, fmt.Errorf("transaction %q: the state is from another driver", env.ID)
	}
	return tx, nil
}

func labelsOf(env *driver.Environment) map[string]string {
	labels := maps.Clone(env.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[driver.LabelTransaction] = env.ID
	return labels
}

// InWorkspace returns the path of p relative to the workspace. It returns false if p is outside.
func (t *Transaction) InWorkspace(p string) (rel string, ok bool) {
	if p == "" {
		return "", false
	}
	if p == WorkspaceMount {
		return ".", true
	}
	if inner, ok := strings.CutPrefix(path.Clean(p), WorkspaceMount+"/"); ok {
		return filepath.FromSlash(inner), true
	}
	if filepath.IsAbs(p) {
		return Below(t.WorkspaceDir(), p)
	}
	p = filepath.Clean(p)
	return p, filepath.IsLocal(p)
}

// locate returns p as a path below a directory: the workspace or, where the machine belongs to the
// transaction, the directory of an absolute path. It returns false if p is neither.
func (t *Transaction) locate(p string) (dir, rel string, ok bool) {
	if rel, ok := t.InWorkspace(p); ok {
		return t.WorkspaceDir(), rel, true
	}
	if t.WholeMachine && filepath.IsAbs(p) {
		p = filepath.Clean(p)
		return filepath.Dir(p), filepath.Base(p), true
	}
	return "", "", false
}

// MakeDir creates dir with exactly the given mode. It does not change an existing directory.
func MakeDir(dir string, mode fs.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) {
		if info, statErr := os.Lstat(dir); statErr == nil && info.IsDir() {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode) // Mkdir applied the umask
}

// WriteFile writes a file or directory into the workspace.
func (t *Transaction) WriteFile(f *stage.File) error {
	dir, rel, ok := t.locate(f.Path)
	if !ok {
		return fmt.Errorf("file %q is not in the workspace", f.Path)
	}
	return t.writeAt(dir, rel, f)
}

// writeAt writes a file or directory at a path that locate returned.
func (t *Transaction) writeAt(dir, rel string, f *stage.File) error {
	if dir != t.WorkspaceDir() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the directory of %q: %w", f.Path, err)
		}
	}
	return WriteFile(dir, rel, f)
}
