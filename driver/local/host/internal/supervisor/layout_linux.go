package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Layout describes the namespaces of a supervisor.
type Layout struct {
	// Socket is the directory of the supervisor's socket. Steps see another directory in its place. It is
	// empty if the layout is only tried out.
	Socket string `json:"socket,omitempty"`
	// User is the number of the user of the steps, also of their group. It is empty for the supervisor's
	// own user. Home is the user's home directory.
	User string `json:"user,omitempty"`
	Home string `json:"home,omitempty"`
	// Mounts replace files and directories. A mount may be inside another one.
	Mounts []Mount `json:"mounts"`
	// Frozen makes control groups read-only.
	Frozen bool `json:"frozen,omitempty"`
	// Delegate lists directories without which no delegate takes this transaction over, and files, which are
	// ignored. If one of them was removed and no driver was connected for the time Abandoned, the supervisor
	// ends.
	Delegate  []string      `json:"delegate,omitempty"`
	Abandoned time.Duration `json:"abandoned,omitempty"`
}

// Mount replaces a file or a directory.
type Mount struct {
	Target string `json:"target"`
	// Source is shown at Target. If it is empty, Target becomes empty.
	Source string `json:"source,omitempty"`
	// Own shows root's files in Source as files of the layout's user. A set-user-id program in it gives
	// the steps no additional rights.
	Own bool `json:"own,omitempty"`
	// Frozen makes Target read-only, but not the mounts inside.
	Frozen bool `json:"frozen,omitempty"`
	// Shared lets every user write to an empty directory.
	Shared bool `json:"shared,omitempty"`

	tree int // a copy of Source
}

// apply changes the mounts of this process, which is alone in its mount namespace and the first of its
// PID namespace.
func (l *Layout) apply() error {
	// Mounts of the machine continue to appear here, but not the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	slices.SortStableFunc(l.Mounts, func(a, b Mount) int { return len(a.Target) - len(b.Target) })
	if err := l.copyTrees(); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := l.mapOwner(); err != nil {
		return err
	}
	for _, m := range l.Mounts {
		if m.Frozen {
			attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
			if err := unix.MountSetattr(m.tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
				return fmt.Errorf("make %s read-only: %w", m.Target, err)
			}
		}
	}
	for i := range l.Mounts {
		if err := l.Mounts[i].apply(); err != nil {
			return fmt.Errorf("replace %s: %w", l.Mounts[i].Target, err)
		}
	}
	if l.User != "" && l.Socket != "" {
		if err := l.addUser(); err != nil {
			return fmt.Errorf("add the user of the steps: %w", err)
		}
	}
	if l.Frozen {
		return freezeCgroups()
	}
	return nil
}

// copyTrees copies the mounts of all sources before others hide them. It first makes the places of
// mounts that are inside of a source.
func (l *Layout) copyTrees() error {
	for i, m := range l.Mounts {
		for _, outer := range slices.Backward(l.Mounts[:i]) {
			rel, err := filepath.Rel(outer.Target, m.Target)
			if err != nil || !filepath.IsLocal(rel) {
				continue
			}
			if outer.Source != "" && m.Source != "" {
				if err := makePlace(filepath.Join(outer.Source, rel), m.Source); err != nil {
					return err
				}
			}
			break
		}
	}
	for i := range l.Mounts {
		m := &l.Mounts[i]
		if m.Source == "" {
			continue
		}
		var err error
		m.tree, err = unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("copy the mounts of %s: %w", m.Source, err)
		}
	}
	return nil
}

// makePlace creates an empty file or directory at path to mount source on.
func makePlace(path, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// apply puts the mount in its place. An empty mount needs no place.
func (m *Mount) apply() error {
	if m.Source != "" {
		if _, err := os.Lstat(m.Target); err != nil {
			if err := makePlace(m.Target, fmt.Sprintf("/proc/self/fd/%d", m.tree)); err != nil {
				return err
			}
		}
		err := unix.MoveMount(m.tree, "", unix.AT_FDCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH)
		return errors.Join(err, unix.Close(m.tree))
	}
	info, err := os.Lstat(m.Target)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return unix.Mount("/dev/null", m.Target, "", unix.MS_BIND, "")
	}
	options := "mode=0755,size=1m"
	if m.Shared {
		options = "mode=1777"
	}
	return unix.Mount("tmpfs", m.Target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// mapOwner gives the copies that ask for it to the layout's user.
func (l *Layout) mapOwner() error {
	if l.User == "" {
		return nil
	}
	uid, err := strconv.Atoi(l.User)
	if err != nil {
		return err
	}
	users, err := ownerNamespace(uid)
	if err != nil {
		return fmt.Errorf("map files to user %s: %w", l.User, err)
	}
	defer func() { _ = users.Close() }()
	for _, m := range l.Mounts {
		if !m.Own || m.Source == "" {
			continue
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID, Userns_fd: uint64(users.Fd())}
		if err := unix.MountSetattr(m.tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("map the files of %s to user %s: %w", m.Source, l.User, err)
		}
	}
	return nil
}

// ownerNamespace returns a user namespace in which root is the user uid, and all other users but uid are
// themselves.
func ownerNamespace(uid int) (*os.File, error) {
	runtime.LockOSThread() // a traced process belongs to a thread
	defer runtime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{
		{ContainerID: 0, HostID: uid, Size: 1},
		{ContainerID: 1, HostID: 1, Size: uid - 1},
		{ContainerID: uid + 1, HostID: uid + 1, Size: 0xffffffff - uid - 1},
	}
	// The process stops before it runs the program.
	cmd := &exec.Cmd{Path: "/proc/self/exe", SysProcAttr: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return f, err
}

// addUser mounts a list of users that includes the user of the steps. The steps cannot change it.
func (l *Layout) addUser() error {
	const list = "/etc/passwd"
	b, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	b = fmt.Appendf(b, "dlite:x:%s:%s:host steps:%s:/bin/sh\n", l.User, l.User, l.Home)
	file := filepath.Join(l.Socket, "passwd")            // in an empty directory of memory that belongs to root
	if err := os.WriteFile(file, b, 0o644); err != nil { //nolint:gosec // every user reads it
		return err
	}
	return unix.Mount(file, list, "", unix.MS_BIND, "")
}

// freezeCgroups makes control groups read-only. If the user of the steps owned the delegate's control
// groups, a step could kill the processes in them.
func freezeCgroups() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 6 || len(right) < 1 || right[0] != "cgroup" && right[0] != "cgroup2" {
			continue
		}
		path := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(left[4])
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr); err != nil {
			return fmt.Errorf("make the control groups in %s read-only: %w", path, err)
		}
	}
	return nil
}
