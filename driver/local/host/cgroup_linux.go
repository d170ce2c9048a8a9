package host

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

	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// cgroups makes a control group for each host step. Whatever a process does to
// its group, session and environment, its descendants stay in its control
// group, so that none is missed. The zero value is ready.
type cgroups struct {
	once   sync.Once
	parent cgroupParent // set by once; the zero value is a machine without

	mu      sync.Mutex
	useless bool // guarded by mu
}

// cgroupParent is a folder below which we may make control groups.
type cgroupParent struct {
	path string
	v1   bool
}

// cgroup is the control group of one step. A nil one does nothing and is empty.
type cgroup struct {
	path string
	v1   bool
	all  *cgroups
	// outside is called before a process that should have been in it is started
	// without; nil where that makes no difference.
	outside func() error
}

// named gives the control group of that name, which nobody has made yet, or nil
// where we may not make any.
func (a *cgroups) named(name string) *cgroup {
	a.once.Do(func() { a.parent = findCgroupParent() })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parent.path == "" || a.useless {
		return nil
	}
	return &cgroup{path: filepath.Join(a.parent.path, name), v1: a.parent.v1, all: a}
}

// within gives the control group of that name in one that is on record, or nil
// where that is gone.
func (a *cgroups) within(parent, name string) *cgroup {
	if parent == "" {
		return nil
	}
	cg, err := recordedCgroup(parent)
	if cg == nil || err != nil {
		return nil
	}
	return &cgroup{path: filepath.Join(parent, name), v1: cg.v1, all: a}
}

// giveUp makes named answer nil from now on.
func (a *cgroups) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.useless = true
}

// findCgroupParent is our own control group, as a parent: of version 2, or else
// of the freezer of version 1.
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

// cgroupParents reads the two files of /proc/self and lists our control groups,
// the best first.
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
		rel, ok := steps.Below(root, own)
		if !ok || own == "/.." || strings.HasPrefix(own, "/../") {
			continue // or it is outside of our namespace
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

// ownCgroup finds the path of our control group in /proc/self/cgroup.
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

// unescapeMount undoes what the kernel does to blanks in a path.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// start starts cmd in the control group, so that its process has never been
// anywhere else.
func (c *cgroup) start(cmd *exec.Cmd) error {
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

// startV1 starts cmd from a thread that is in the control group: version 1 moves
// single threads, and a child begins where the thread is that forks it.
func (c *cgroup) startV1(cmd *exec.Cmd) error {
	home, err := os.OpenFile(filepath.Join(filepath.Dir(c.path), "tasks"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = home.Close() }()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		tid := []byte(strconv.Itoa(unix.Gettid()))
		err := os.WriteFile(filepath.Join(c.path, "tasks"), tid, 0)
		if err == nil {
			err = cmd.Start()
		}
		// A thread that cannot get back ends with this goroutine.
		if _, backErr := home.Write(tid); backErr == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

func (c *cgroup) make() error { return os.Mkdir(c.path, 0o755) }

// pids lists the processes in the control group and those below it.
func (c *cgroup) pids() []int {
	var list []int
	_ = filepath.WalkDir(c.path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range bytes.FieldsSeq(b) {
			// 0 is a process that our namespace does not show.
			if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
				list = append(list, pid)
			}
		}
		return nil
	})
	return list
}

// populated reports whether a process is in the control group or below it.
func (c *cgroup) populated() bool {
	if c == nil {
		return false
	}
	if c.v1 {
		return len(c.pids()) > 0
	}
	events, err := os.ReadFile(filepath.Join(c.path, "cgroup.events"))
	return err == nil && bytes.Contains(events, []byte("populated 1"))
}

// signal sends sig to all in the control group except those of a process group.
func (c *cgroup) signal(sig syscall.Signal, except int) {
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

// signalOne spares a process that has taken over the id meanwhile.
func (c *cgroup) signalOne(pid int, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ENOSYS) && c.has(pid) {
			_ = syscall.Kill(pid, sig)
		}
		return
	}
	if c.has(pid) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	_ = unix.Close(fd)
}

func (c *cgroup) has(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && bytes.Contains(b, []byte("/"+filepath.Base(c.path)))
}

// kill kills all in the control group and returns when it is empty, or stop is
// closed. One that is gone is empty.
func (c *cgroup) kill(stop <-chan struct{}) error {
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

// killEach serves kernels that cannot kill a control group as a whole. While it
// is frozen nobody in it can fork.
func (c *cgroup) killEach() {
	c.freeze(true)
	for _, pid := range c.pids() {
		c.signalOne(pid, syscall.SIGKILL)
	}
	c.freeze(false) // version 1 delivers the signal only now
}

func (c *cgroup) freeze(on bool) {
	file, value := "cgroup.freeze", "0"
	if on {
		value = "1"
	}
	if c.v1 {
		if file, value = "freezer.state", "THAWED"; on {
			value = "FROZEN"
		}
	}
	// A nested one that is frozen itself would stay so.
	_ = filepath.WalkDir(c.path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.WriteFile(filepath.Join(path, file), []byte(value), 0)
		}
		return nil
	})
}

// vacate removes the control group if nothing is in it, which is the usual end of
// a step, and reports whether it did.
func (c *cgroup) vacate() bool { return syscall.Rmdir(c.path) == nil }

// remove removes an empty control group with those that its step made in it.
func (c *cgroup) remove() error {
	if c == nil {
		return nil
	}
	if c.vacate() {
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

// recordedCgroup is the control group of a record, nil when it is gone. The
// path of a record is used only when it is a control group with a name of ours.
func recordedCgroup(path string) (*cgroup, error) {
	if path == "" {
		return nil, nil
	}
	if filepath.Clean(path) != path || !filepath.IsAbs(path) || !steps.IsOurs(filepath.Base(path)) {
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
		return &cgroup{path: path}, nil
	case unix.CGROUP_SUPER_MAGIC:
		return &cgroup{path: path, v1: true}, nil
	}
	return nil, fmt.Errorf("%s is not a control group", path)
}
