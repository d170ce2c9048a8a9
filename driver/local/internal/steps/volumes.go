package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Volume is a directory of this machine that steps share.
type Volume struct {
	Path     string
	ReadOnly bool
}

// MakeVolumes creates the missing directories of list. It prints to out why a size limit is not
// enforced.
func (d *Driver) MakeVolumes(ctx context.Context, tx *Transaction, list []*stage.Volume, l driver.Ledger, out io.Writer) error {
	for _, v := range list {
		switch {
		case v == nil:
		case v.Temp != nil:
			p, err := tx.tempPath(v.Temp)
			if err != nil {
				return err
			}
			if err := MakeDir(p, 0o777); err != nil {
				return fmt.Errorf("volume %q: %w", v.Temp.Name, err)
			}
			if v.Temp.SizeLimit > 0 {
				if err := d.limitVolume(ctx, tx, v.Temp, p, l, out); err != nil {
					return fmt.Errorf("volume %q: %w", v.Temp.Name, err)
				}
			}
		case v.Host != nil:
			if err := d.makeHostVolume(ctx, tx, v.Host, l); err != nil {
				return fmt.Errorf("volume %q: %w", v.Host.Name, err)
			}
		case v.Claim != nil:
			return fmt.Errorf("volume %q: it is a claim of a Kubernetes cluster, which only the Kubernetes driver can mount", v.Claim.Name)
		}
	}
	return nil
}

// limitVolume enforces the size of a volume in memory with its own file system. It cannot limit a
// volume on a disk, or any volume if this process may not mount.
func (d *Driver) limitVolume(ctx context.Context, tx *Transaction, v *stage.TempVolume, dir string, l driver.Ledger, out io.Writer) error {
	unlimited := func(why string) {
		if out != nil {
			_, _ = fmt.Fprintf(out, "The size limit of volume %q is not enforced: %s\n", v.Name, why)
		}
	}
	if v.Medium != "memory" {
		unlimited("only the limit of a volume in memory can be enforced")
		return nil
	}
	if mounted, err := isMount(dir); mounted || err != nil {
		return err
	}
	r := driver.Resource{Kind: KindMount, ID: dir, Labels: tx.Labels}
	return d.Gate.Create(ctx, l, r, func() error {
		if mounted, err := isMount(dir); mounted || err != nil {
			return err // a parallel call mounted it
		}
		if err := mountMemory(dir, v.SizeLimit); err != nil {
			unlimited(err.Error())
		}
		return nil
	})
}

// FindVolumes returns the volumes of the lists, and the workspace, by name and by id. Later ones win.
func FindVolumes(tx *Transaction, lists ...[]*stage.Volume) (map[string]*Volume, error) {
	found := map[string]*Volume{stage.WorkspaceVolume: {Path: tx.WorkspaceDir()}}
	add := func(v *Volume, keys ...string) {
		for _, k := range keys {
			if k != "" {
				found[k] = v
			}
		}
	}
	for _, list := range lists {
		for _, v := range list {
			switch {
			case v == nil:
			case v.Temp != nil:
				p, err := tx.tempPath(v.Temp)
				if err != nil {
					return nil, err
				}
				add(&Volume{Path: p}, v.Temp.ID, v.Temp.Name)
			case v.Host != nil:
				add(&Volume{Path: filepath.Clean(v.Host.Path), ReadOnly: v.Host.ReadOnly}, v.Host.ID, v.Host.Name)
			}
		}
	}
	return found, nil
}

func (t *Transaction) tempPath(v *stage.TempVolume) (string, error) {
	id := v.ID
	if id == "" {
		id = v.Name
	}
	if id == "" {
		return "", errors.New("a temporary volume has neither id nor name")
	}
	dir := t.Dir
	if v.Medium == "memory" {
		dir = t.Memory
	}
	return filepath.Join(dir, "volumes", UniqueSlug(id)), nil
}

func (d *Driver) makeHostVolume(ctx context.Context, tx *Transaction, v *stage.HostVolume, l driver.Ledger) error {
	if !filepath.IsAbs(v.Path) {
		return fmt.Errorf("path %q is not absolute", v.Path)
	}
	if runtime.GOOS == "windows" && strings.HasPrefix(v.Path, `\\.\`) {
		return nil // a named pipe, which Lstat cannot read
	}
	p := filepath.Clean(v.Path)
	info, err := os.Lstat(p)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return err
	case missing && !v.Create && !tx.WholeMachine:
		return fmt.Errorf("path %s does not exist and create is not set", p)
	case !v.Remove && missing:
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		return markMade(p)
	case !v.Remove:
		return nil
	}
	if err := d.checkRemovable(p, info); err != nil {
		return err
	}
	// Each parent has its own record, the deepest last.
	var parents []string
	for dir := filepath.Dir(p); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		parents = append(parents, dir)
	}
	for _, dir := range slices.Backward(parents) {
		r := driver.Resource{Kind: KindParent, ID: dir, Labels: tx.Labels}
		if err := d.Gate.Create(ctx, l, r, func() error { return MakeDir(dir, 0o755) }); err != nil {
			return err
		}
	}
	r := driver.Resource{Kind: KindHostDir, ID: p, Labels: tx.Labels}
	return d.Gate.Create(ctx, l, r, func() error {
		if !missing {
			return nil
		}
		if err := MakeDir(p, 0o755); err != nil {
			return err
		}
		return markMade(p)
	})
}

// checkRemovable rejects a host volume with remove if its removal would delete more than one
// directory's content. info is nil if the path does not exist yet.
func (d *Driver) checkRemovable(p string, info fs.FileInfo) error {
	if p == filepath.Dir(p) {
		return errors.New("the root of the file system cannot be removed")
	}
	if info != nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("path %s is a link, and remove is set", p)
	}
	protected := []string{d.Config.WorkDir, d.Config.MemoryDir, d.Config.Workspace}
	if home, err := os.UserHomeDir(); err == nil {
		protected = append(protected, home)
	}
	for _, k := range protected {
		if k == "" {
			continue
		}
		if _, ok := Below(p, k); ok {
			return fmt.Errorf("path %s contains %s and cannot be removed", p, k)
		}
	}
	return nil
}

// Mounted returns the volume that m names.
func (r *Run) Mounted(m *stage.VolumeMount) (*Volume, error) {
	if m == nil {
		return nil, errors.New("a volume mount is null")
	}
	v, ok := r.Volumes[m.Name]
	if !ok {
		return nil, fmt.Errorf("volume %q is neither the transaction's nor the step's", m.Name)
	}
	return v, nil
}
