package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/host/internal/supervisor"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

// The users of transactions have numbers that no known program uses: they follow the numbers of
// containers and precede the reserved ones.
const (
	firstUser = 0x70000000
	lastUser  = 0x7FFDFFFF
)

func newUser() string { return strconv.Itoa(firstUser + rand.IntN(lastUser-firstUser)) }

// places collects the mounts of a transaction's steps.
type places struct {
	cfg    *steps.Config
	own    bool // steps run as another user than the driver
	mounts []supervisor.Mount
}

// layoutOf returns the layout of a transaction, and creates the directories that it needs.
func layoutOf(cfg *steps.Config, tx *steps.Transaction, env *driver.Environment) (*supervisor.Layout, error) {
	p := &places{cfg: cfg, own: tx.Supervisor.User != ""}
	l := &supervisor.Layout{
		Socket: tx.Supervisor.Dir, User: tx.Supervisor.User, Home: filepath.Join(tx.Dir, "home"), Frozen: !p.own,
	}
	if err := makePlaces(tx, l); err != nil {
		return nil, err
	}
	p.private("/tmp", filepath.Join(tx.Dir, "tmp"))
	p.private("/var/tmp", filepath.Join(tx.Dir, "var-tmp"))
	p.private("/dev/shm", "")
	p.hide(p.cfg.WorkDir, p.cfg.MemoryDir)
	if err := p.hideDelegate(); err != nil {
		return nil, err
	}
	shown, err := p.shown(tx, env)
	if err != nil {
		return nil, err
	}
	for _, m := range shown {
		p.open(m.Target)
	}
	p.mounts = append(append(p.mounts, shown...), supervisor.Mount{Target: l.Socket})
	l.Mounts = p.mounts
	return l, nil
}

// makePlaces creates directories of a transaction that only separated steps need, and lets their user
// through to the workspace.
func makePlaces(tx *steps.Transaction, l *supervisor.Layout) error {
	for _, name := range []string{"tmp", "var-tmp"} {
		if err := steps.MakeDir(filepath.Join(tx.Dir, name), 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	if l.User == "" {
		return nil
	}
	group, err := strconv.Atoi(l.User)
	if err != nil {
		return err
	}
	for _, dir := range []string{tx.Dir, tx.Memory} {
		if err := errors.Join(os.Chown(dir, -1, group), os.Chmod(dir, 0o710)); err != nil {
			return err
		}
	}
	return steps.MakeDir(l.Home, 0o700)
}

// shown lists the directories that the steps see. A step can neither replace a directory that is a mount
// nor change one that is frozen: the driver goes through them too.
func (p *places) shown(tx *steps.Transaction, env *driver.Environment) (list []supervisor.Mount, err error) {
	show := func(dir string, own bool) {
		list = append(list, supervisor.Mount{Target: dir, Source: dir, Own: own && p.own})
	}
	bases := []string{tx.Dir}
	if tx.Memory != tx.Dir {
		bases = append(bases, tx.Memory)
	}
	for _, base := range bases {
		list = append(list, supervisor.Mount{Target: base, Source: base, Frozen: true})
		show(filepath.Join(base, "steps"), false)
		show(filepath.Join(base, "volumes"), false)
	}
	show(tx.WorkspaceDir(), true)
	if p.own {
		show(filepath.Join(tx.Dir, "home"), true)
	}
	for _, v := range env.Volumes {
		switch {
		case v == nil:
		case v.Temp != nil && p.own:
			volumes, err := steps.FindVolumes(tx, []*stage.Volume{v})
			if err != nil {
				return nil, err
			}
			for _, found := range volumes {
				show(found.Path, true)
				break // its id and its name mean the same
			}
		case v.Host != nil:
			path := filepath.Clean(v.Host.Path)
			if made := p.own && steps.IsMade(path); made || p.needsMount(path) {
				show(path, made)
			}
		}
	}
	return list, nil
}

// private replaces a directory that all users share, unless the machine has none.
func (p *places) private(dir, source string) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil || p.replaced(resolved) {
		return
	}
	p.mounts = append(p.mounts, supervisor.Mount{Target: resolved, Source: source, Shared: source == ""})
}

// hide makes files and directories empty.
func (p *places) hide(paths ...string) {
	for _, path := range paths {
		if path == "" {
			continue
		}
		if resolved, err := filepath.EvalSymlinks(path); err == nil && !p.replaced(resolved) {
			p.mounts = append(p.mounts, supervisor.Mount{Target: resolved})
		}
	}
}

// hideDelegate hides the files of the delegate, and the sockets of the user's session: a service of the
// session would run commands outside of the namespaces.
func (p *places) hideDelegate() error {
	for _, path := range p.cfg.Hidden {
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		p.hide(abs)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		p.hide(filepath.Join(cache, "dlite"))
	}
	p.hide(p.cfg.PluginCache, os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", os.Getuid()))
	return nil
}

// needsMount reports whether a host volume is below a replaced directory and may be shown. A volume with
// directories of transactions in it, or in one of them, may not.
func (p *places) needsMount(path string) bool {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil || resolved != filepath.Clean(path) {
		return false
	}
	for _, dir := range append([]string{p.cfg.WorkDir, p.cfg.MemoryDir, p.cfg.PluginCache}, p.cfg.Hidden...) {
		if dir == "" {
			continue
		}
		if _, ok := steps.Below(resolved, dir); ok {
			return false
		}
		if rel, ok := steps.Below(dir, resolved); ok {
			if first, _, _ := strings.Cut(rel, string(filepath.Separator)); steps.IsOurs(first) || dir != p.cfg.WorkDir && dir != p.cfg.MemoryDir {
				return false
			}
		}
	}
	return p.replaced(resolved)
}

// replaced reports whether steps see something else at a path, or do not see it.
func (p *places) replaced(path string) bool {
	return slices.ContainsFunc(p.mounts, func(m supervisor.Mount) bool { _, ok := steps.Below(m.Target, path); return ok })
}

// open replaces directories above target that the steps' user may not pass.
func (p *places) open(target string) {
	if !p.own {
		return
	}
	at := string(filepath.Separator)
	for part := range strings.SplitSeq(strings.Trim(filepath.Dir(target), at), at) {
		at = filepath.Join(at, part)
		if p.replaced(at) {
			return // all below it is new
		}
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&0o001 == 0 {
			p.hide(at)
			return
		}
	}
}
