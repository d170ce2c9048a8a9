package local

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
)

// transaction is what Init leaves in an environment's state.
type transaction struct {
	// Name is the Docker network's and part of every other name.
	Name string `json:"name"`
	// Dir is the transaction's folder, Memory the one in memory, or Dir.
	Dir    string `json:"dir"`
	Memory string `json:"memory"`
	// Workspace is a folder that was there before, if there is one.
	Workspace string `json:"workspace,omitempty"`
	// Cgroup is the control group of all its host steps, empty where there is
	// none.
	Cgroup string `json:"cgroup,omitempty"`
	// Maker is the id of the driver that ran Init.
	Maker string `json:"maker,omitempty"`

	labels map[string]string
}

func (t *transaction) workspace() string {
	if t.Workspace != "" {
		return t.Workspace
	}
	return filepath.Join(t.Dir, "workspace")
}

// Init makes the folders of a transaction, its volumes and files (SPEC D2). It
// contacts no engine: the network is made for the first step that needs it. A
// second Init of an environment finds what the first one made.
//
// Paths in env.Files are relative to the workspace, or absolute and below it or
// below [WorkspaceMount]. A host volume that nobody asked to create must exist.
// env.Clone is checked out before the files are made; what git has to say goes
// to env.Log.
func (d *Driver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if env.ID == "" {
		return errors.New("init: the transaction has no id")
	}
	tx := &transaction{}
	again := len(env.State) > 0
	if again {
		var err error
		if tx, err = openTransaction(env); err != nil {
			return err
		}
	} else {
		tx.Name, tx.Maker, tx.Workspace = recorded.NewName(env.ID), d.id, d.cfg.workspace
		tx.Dir = filepath.Join(d.cfg.workDir, tx.Name)
		tx.Memory = tx.Dir
		if d.cfg.memoryDir != "" {
			tx.Memory = filepath.Join(d.cfg.memoryDir, tx.Name)
		}
		if cg := d.cgroups.named(tx.Name); cg != nil {
			tx.Cgroup = cg.path
		}
	}
	tx.labels = labelsOf(env)
	if err := d.makeGroup(ctx, tx, l, func() error { return d.makeFolders(ctx, tx, l) }); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := d.makeVolumes(ctx, tx, env.Volumes, l, env.Log); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if env.Clone != nil && !again {
		// Before the files, which may be meant to replace some of the repository's.
		if err := d.clone(ctx, tx, env, l); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	for _, f := range env.Files {
		if f == nil {
			continue
		}
		rel, ok := tx.inWorkspace(f.Path)
		if !ok {
			return fmt.Errorf("init: file %q is not in the workspace", f.Path)
		}
		if err := writeFile(tx.workspace(), rel, f); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	state, err := json.Marshal(tx)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	env.State = state
	return nil
}

// makeGroup makes the control group of a transaction's host steps, after what
// else is to be made: the record of that is durable, and so the group's is too.
// Where none can be made, each step sees for itself.
func (d *Driver) makeGroup(ctx context.Context, tx *transaction, l driver.Ledger, makeElse func() error) error {
	if tx.Cgroup == "" {
		return makeElse()
	}
	r := driver.Resource{Kind: kindGroup, ID: tx.Cgroup, Labels: tx.labels, Volatile: true}
	return d.gate.Create(ctx, l, r, func() error {
		if err := makeElse(); err != nil {
			return err
		}
		if err := os.Mkdir(tx.Cgroup, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			tx.Cgroup = ""
		}
		return nil
	})
}

// makeFolders makes what the steps share. Everything below the two folders that
// are recorded goes with them.
func (d *Driver) makeFolders(ctx context.Context, tx *transaction, l driver.Ledger) error {
	dirs := []string{tx.Dir}
	if tx.Memory != tx.Dir {
		dirs = append(dirs, tx.Memory)
	}
	for _, dir := range dirs {
		r := driver.Resource{Kind: kindDirectory, ID: dir, Labels: tx.labels}
		// Nobody but us gets in; what is inside is open to whatever user a
		// container runs as.
		err := d.gate.Create(ctx, l, r, func() error { return makeDir(dir, 0o700) })
		if err != nil {
			return err
		}
		for _, sub := range []string{"volumes", "steps"} {
			if err := makeDir(filepath.Join(dir, sub), 0o711); err != nil {
				return err
			}
		}
	}
	if tx.Workspace != "" {
		return nil
	}
	return makeDir(tx.workspace(), 0o777)
}

// openTransaction reads what Init left.
func openTransaction(env *driver.Environment) (*transaction, error) {
	if len(env.State) == 0 {
		return nil, fmt.Errorf("transaction %q: its init has not run on this driver", env.ID)
	}
	tx := &transaction{labels: labelsOf(env)}
	if err := json.Unmarshal(env.State, tx); err != nil {
		return nil, fmt.Errorf("transaction %q: read the driver's state: %w", env.ID, err)
	}
	if !recorded.IsName(tx.Name) || filepath.Base(tx.Dir) != tx.Name || filepath.Base(tx.Memory) != tx.Name {
		return nil, fmt.Errorf("transaction %q: the state is not this driver's", env.ID)
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

// inWorkspace finds the place in the workspace that p means, if it means one.
func (t *transaction) inWorkspace(p string) (rel string, ok bool) {
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
		return below(t.workspace(), p)
	}
	p = filepath.Clean(p)
	return p, filepath.IsLocal(p)
}

// makeDir makes dir with exactly that mode; one that is there already is left
// as it is.
func makeDir(dir string, mode fs.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) {
		if info, statErr := os.Lstat(dir); statErr == nil && info.IsDir() {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode) // the umask had its say in Mkdir
}
