package vmtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/driver/vm"
)

// Processes is a provider whose machines are processes of this host: an agent as
// the first process of a PID namespace, with a folder of its own in the place of a
// disk, an address of its own in 127.0.0.0/8, and memory at /dev/shm that goes with
// it. It needs root. It keeps no secret on disk. Use [NewProcesses].
type Processes struct {
	dir   string
	agent string
	work  sync.WaitGroup
}

var _ vm.Provider = (*Processes)(nil)

// NewProcesses makes a provider that keeps its machines below dir, and in them
// runs the program agent, which is what examples/agent builds to. Both are absolute
// paths.
func NewProcesses(dir, agent string) *Processes { return &Processes{dir: dir, agent: agent} }

// Name is "processes".
func (p *Processes) Name() string { return "processes" }

// Wait returns when none of the machines that this provider has made runs any
// more.
func (p *Processes) Wait() { p.work.Wait() }

// Disk is where the machine of that id has its files.
func (p *Processes) Disk(owner, id string) string { return filepath.Join(p.dir, owner, id) }

// first makes the namespaces a machine's own, and becomes the agent.
const first = `mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"`

// Create starts the agent, which is told what it has to be told by a pipe. A
// process that dies in between leaves an agent that ends by itself.
func (p *Processes) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	disk := p.Disk(spec.Owner, spec.ID)
	if err := os.MkdirAll(disk, 0o711); err != nil {
		return vm.Machine{}, err
	}
	// An address each, so that no port has to be found.
	b := make([]byte, 3)
	_, _ = rand.Read(b) // never fails, says its documentation
	address := fmt.Sprintf("127.%d.%d.%d:9079", b[0]|1, b[1], b[2]|1)
	told, err := withListen(spec.Boot(), address)
	if err != nil {
		return vm.Machine{}, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return vm.Machine{}, err
	}
	defer r.Close() //nolint:errcheck // only read from
	defer w.Close() //nolint:errcheck // what matters is Write's error
	if err := ctx.Err(); err != nil {
		return vm.Machine{}, err
	}
	cmd := exec.Command("/bin/sh", "-c", first, "machine", //nolint:noctx // it outlives who makes it
		p.agent, "serve", "--boot", "/dev/fd/3", "--work-dir", disk, "--log-level", "error")
	cmd.Dir = disk // which is how it is found
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return vm.Machine{}, err
	}
	p.work.Go(func() { _ = cmd.Wait() }) // it is killed sooner or later
	if _, err := w.Write(told); err != nil {
		return vm.Machine{}, err
	}
	data, err := json.Marshal(cmd.Process.Pid)
	return vm.Machine{Address: address, Created: time.Now(), Data: data}, err
}

func withListen(boot []byte, address string) ([]byte, error) {
	all := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(boot))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, errors.New("the machine's boot is no JSON")
	}
	all["listen"] = address
	return json.Marshal(all)
}

// Destroy kills the machine's processes, waits for them to be gone, and removes its
// folder. The first process of a PID namespace is gone when all others are.
func (p *Processes) Destroy(ctx context.Context, id string) error {
	disks, err := filepath.Glob(p.Disk("*", id))
	if err != nil {
		return err
	}
	for _, disk := range disks {
		for pids := running(disk); len(pids) > 0; pids = running(disk) {
			for _, pid := range pids {
				if err := kill(ctx, pid); err != nil {
					return err
				}
			}
		}
		if err := os.RemoveAll(disk); err != nil {
			return err
		}
	}
	return nil
}

// kill ends a process and waits until it is gone. Nobody but its parent would be
// told that.
func kill(ctx context.Context, pid int) error {
	begun, running := startOf(pid)
	for is := begun; running && is == begun; is, running = startOf(pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		wait := time.NewTimer(time.Millisecond)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// startOf is when a process has started, and whether it runs.
func startOf(pid int) (start string, running bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// What is in the parentheses may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return "", false
	}
	// A first thread that has ended says so while others still end, with the sockets.
	threads, _ := strconv.Atoi(fields[17])
	return fields[19], threads > 1 || fields[0] != "Z" && fields[0] != "X"
}

// Alive looks for the machine's processes.
func (p *Processes) Alive(_ context.Context, id string) (bool, error) {
	disks, err := filepath.Glob(p.Disk("*", id))
	if err != nil || len(disks) == 0 {
		return false, err
	}
	return len(running(disks[0])) > 0, nil
}

// List lists the owner's folders.
func (p *Processes) List(_ context.Context, owner string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(p.dir, owner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

// running finds the processes that have begun in the folder or name it, the first
// one of the namespace among them, with which all others end. A process that is
// becoming another program has no arguments for a moment, but it is somewhere.
func running(disk string) (pids []int) {
	mark := []byte("\x00--work-dir\x00" + disk + "\x00")
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		here, _ := os.Readlink(filepath.Join(dir, "cwd")) // it may have ended
		arguments, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if here != disk && !bytes.Contains(arguments, mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
