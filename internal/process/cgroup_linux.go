package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroups creates control groups below the control group of this process. Whatever a process does to
// its process group, its session and its environment, its descendants stay in its control group. The
// zero value is ready. It is safe for concurrent use.
type Cgroups struct {
	once   sync.Once
	parent cgroupParent // set by once; the zero value is a machine without control groups

	mu      sync.Mutex
	refused bool // guarded by mu
}

// CgroupDir returns the directory of the control group below which this process may create others, or
// "" if it may not create any.
func CgroupDir() string { return findCgroupParent().path }

// cgroupParent is a control group below which this process may create others.
type cgroupParent struct {
	path string
	v1   bool
}

// Cgroup is the control group of one group of processes. A nil Cgroup is empty, and its methods do
// nothing.
type Cgroup struct {
	path string
	v1   bool
	all  *Cgroups
}

// Named returns the control group of a new name, which [Start] creates. It returns nil if this process
// may not create control groups.
func (a *Cgroups) Named(name string) *Cgroup {
	a.once.Do(func() { a.parent = findCgroupParent() })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parent.path == "" || a.refused {
		return nil
	}
	return &Cgroup{path: filepath.Join(a.parent.path, name), v1: a.parent.v1, all: a}
}

// Within returns the control group of a new name inside a control group on record. It returns nil if
// the control group on record is gone or isOwn does not accept its name.
func (a *Cgroups) Within(parent, name string, isOwn func(string) bool) *Cgroup {
	if parent == "" {
		return nil
	}
	cg, err := OpenCgroup(parent, isOwn)
	if cg == nil || err != nil {
		return nil
	}
	return &Cgroup{path: filepath.Join(parent, name), v1: cg.v1, all: a}
}

// giveUp makes Named return nil from now on.
func (a *Cgroups) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = true
}

// Path returns the directory of the control group.
func (c *Cgroup) Path() string { return c.path }

// findCgroupParent returns the control group of this process: of version 2, or else of the freezer of
// version 1.
func findCgroupParent() cgroupParent {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroupParent{}
	}
	member, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return cgroupParent{}
	}
	for _, p := range cgroupParents(string(mounts), string(member)) {
		if unix.Access(p.path, unix.W_OK|unix.X_OK) == nil && unix.Access(filepath.Join(p.path, "cgroup.procs"), unix.W_OK) == nil {
			return p
		}
	}
	return cgroupParent{}
}

// cgroupParents reads the content of /proc/self/mountinfo and /proc/self/cgroup, and lists the control
// groups of this process, the best first.
func cgroupParents(mounts, member string) []cgroupParent {
	var v1, v2 []cgroupParent
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		root, mount := unescapeMount(left[3]), unescapeMount(left[4])
		isV2 := right[0] == "cgroup2"
		if !isV2 && (right[0] != "cgroup" || !hasWord(right[2], "freezer")) {
			continue
		}
		own, ok := ownCgroup(member, isV2)
		if !ok {
			continue
		}
		// The mount may show only a part of the hierarchy.
		rel, err := filepath.Rel(root, own)
		if err != nil || !filepath.IsLocal(rel) || own == "/.." || strings.HasPrefix(own, "/../") {
			continue // it is outside of the mount or of the namespace
		}
		p := cgroupParent{path: filepath.Join(mount, rel), v1: !isV2}
		if isV2 {
			v2 = append(v2, p)
		} else {
			v1 = append(v1, p)
		}
	}
	return append(v2, v1...)
}

// ownCgroup returns the path of the control group of this process in /proc/self/cgroup.
func ownCgroup(member string, v2 bool) (string, bool) {
	for line := range strings.Lines(member) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if v2 && f[0] == "0" && f[1] == "" || !v2 && hasWord(f[1], "freezer") {
			return f[2], true
		}
	}
	return "", false
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// unescapeMount decodes the escapes that the kernel writes for blanks in a path.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// start starts cmd in the control group. Its process is in no other one at any time.
func (c *Cgroup) start(cmd *exec.Cmd) error {
	if c.v1 {
		return c.startV1(cmd)
	}
	dir, err := os.Open(c.path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	err = cmd.Start()
	cmd.SysProcAttr.UseCgroupFD = false
	return err
}

// startV1 starts cmd from a thread in the control group. Version 1 moves single threads, and a child
// starts in the control group of the thread that forks it.
func (c *Cgroup) startV1(cmd *exec.Cmd) error {
	origin, err := os.OpenFile(filepath.Join(filepath.Dir(c.path), "tasks"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = origin.Close() }()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		tid := []byte(strconv.Itoa(unix.Gettid()))
		err := os.WriteFile(filepath.Join(c.path, "tasks"), tid, 0)
		if err == nil {
			err = cmd.Start()
		}
		// A thread that cannot move back ends with this goroutine.
		if _, backErr := origin.Write(tid); backErr == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

func (c *Cgroup) create() error { return os.Mkdir(c.path, 0o755) }

// pids lists the processes in the control group and those below it.
func (c *Cgroup) pids() []int {
	var list []int
	_ = filepath.WalkDir(c.path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range bytes.FieldsSeq(b) {
			// 0 is a process outside of the namespace of this process.
			if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
				list = append(list, pid)
			}
		}
		return nil
	})
	return list
}

// populated reports whether a process is in the control group or below it.
func (c *Cgroup) populated() bool {
	if c == nil {
		return false
	}
	if c.v1 {
		return len(c.pids()) > 0
	}
	events, err := os.ReadFile(filepath.Join(c.path, "cgroup.events"))
	return err == nil && bytes.Contains(events, []byte("populated 1"))
}

// signal sends sig to the processes in the control group, except those of the process group except.
func (c *Cgroup) signal(sig syscall.Signal, except int) {
	if c == nil {
		return
	}
	for _, pid := range c.pids() {
		if except != 0 {
			if group, err := syscall.Getpgid(pid); err != nil || group == except {
				continue
			}
		}
		c.signalOne(pid, sig)
	}
}

// signalOne sends sig to a process, unless another process has taken over the id meanwhile.
func (c *Cgroup) signalOne(pid int, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) && c.contains(pid) {
			_ = syscall.Kill(pid, sig)
		}
		return
	}
	if c.contains(pid) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	_ = unix.Close(fd)
}

func (c *Cgroup) contains(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && bytes.Contains(b, []byte("/"+filepath.Base(c.path)))
}

// Kill kills the processes in the control group. It returns when the control group is empty or stop is
// closed. A control group that is gone is empty.
func (c *Cgroup) Kill(stop <-chan struct{}) error {
	if !c.populated() {
		return nil
	}
	const rounds = 500
	for i := range rounds {
		if os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0) != nil {
			c.killEach()
		}
		select {
		case <-time.After(min(time.Duration(i)+1, 20) * time.Millisecond):
		case <-stop:
			return fmt.Errorf("processes of control group %s have not ended yet", c.path)
		}
		if !c.populated() {
			return nil
		}
	}
	return fmt.Errorf("processes of control group %s do not end", c.path)
}

// killEach is for kernels that cannot kill a control group as a whole. While the control group is frozen
// its processes cannot fork.
func (c *Cgroup) killEach() {
	c.freeze(true)
	for _, pid := range c.pids() {
		c.signalOne(pid, syscall.SIGKILL)
	}
	c.freeze(false) // version 1 delivers the signal only now
}

func (c *Cgroup) freeze(on bool) {
	file, value := "cgroup.freeze", "0"
	if on {
		value = "1"
	}
	if c.v1 {
		if file, value = "freezer.state", "THAWED"; on {
			value = "FROZEN"
		}
	}
	// A nested control group that is frozen itself would stay frozen.
	_ = filepath.WalkDir(c.path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.WriteFile(filepath.Join(path, file), []byte(value), 0)
		}
		return nil
	})
}

// removeEmpty removes the control group if it is empty, which is the usual case at the end of a step. It
// reports whether it did.
func (c *Cgroup) removeEmpty() bool { return syscall.Rmdir(c.path) == nil }

// Remove removes an empty control group and the empty control groups in it.
func (c *Cgroup) Remove() error {
	if c == nil {
		return nil
	}
	if c.removeEmpty() {
		return nil
	}
	var dirs []string
	_ = filepath.WalkDir(c.path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		err := syscall.Rmdir(dirs[i])
		// The kernel may take a moment to forget the last process.
		for wait := time.Millisecond; errors.Is(err, syscall.EBUSY) && wait < 200*time.Millisecond && !c.populated(); wait *= 2 {
			<-time.After(wait)
			err = syscall.Rmdir(dirs[i])
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return &fs.PathError{Op: "remove control group", Path: dirs[i], Err: err}
		}
	}
	return nil
}

// OpenCgroup returns the control group of a record, or nil if it is gone. It fails if path is not a control
// group or isOwn does not accept its name.
func OpenCgroup(path string, isOwn func(name string) bool) (*Cgroup, error) {
	if path == "" {
		return nil, nil
	}
	if filepath.Clean(path) != path || !filepath.IsAbs(path) || !isOwn(filepath.Base(path)) {
		return nil, fmt.Errorf("%s is not a control group of this driver", path)
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(path, &fsys); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("control group %s: %w", path, err)
	}
	switch fsys.Type {
	case unix.CGROUP2_SUPER_MAGIC:
		return &Cgroup{path: path}, nil
	case unix.CGROUP_SUPER_MAGIC:
		return &Cgroup{path: path, v1: true}, nil
	}
	return nil, fmt.Errorf("%s is not a control group", path)
}
