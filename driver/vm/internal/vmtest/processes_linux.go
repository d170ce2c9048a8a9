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

// Processes is a provider whose machines are processes of this host. The agent is the first
// process of a PID namespace. A directory replaces the disk. Each machine has its own address in
// 127.0.0.0/8, and memory at /dev/shm that disappears with it. It needs root. It writes no secret
// to a disk. Create it with [NewProcesses].
type Processes struct {
	dir   string
	agent string
	work  sync.WaitGroup
}

var _ vm.Provider = (*Processes)(nil)

// NewProcesses returns a provider that stores its machines below dir. They run the program agent,
// built from examples/agent. Both are absolute paths.
func NewProcesses(dir, agent string) *Processes { return &Processes{dir: dir, agent: agent} }

// Name returns "processes".
func (p *Processes) Name() string { return "processes" }

// Wait returns when none of this provider's machines runs.
func (p *Processes) Wait() { p.work.Wait() }

// Disk returns the directory of a machine.
func (p *Processes) Disk(owner, id string) string { return filepath.Join(p.dir, owner, id) }

// first sets up the machine's namespaces and becomes the agent.
const first = `mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"`

// Create starts the agent and sends it the boot over a pipe. If this process dies in between, the
// agent ends by itself.
func (p *Processes) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	disk := p.Disk(spec.Owner, spec.ID)
	if err := os.MkdirAll(disk, 0o711); err != nil {
		return vm.Machine{}, err
	}
	// Each machine has its own address, so the port is fixed.
	b := make([]byte, 3)
	_, _ = rand.Read(b) // documented to never fail
	address := fmt.Sprintf("127.%d.%d.%d:9079", b[0]|1, b[1], b[2]|1)
	boot, err := withListen(spec.Boot(), address)
	if err != nil {
		return vm.Machine{}, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return vm.Machine{}, err
	}
	defer r.Close() //nolint:errcheck // read only
	defer w.Close() //nolint:errcheck // Write reports the errors that matter
	if err := ctx.Err(); err != nil {
		return vm.Machine{}, err
	}
	cmd := exec.Command("/bin/sh", "-c", first, "machine", //nolint:noctx // it outlives who makes it
		p.agent, "serve", "--boot", "/dev/fd/3", "--work-dir", disk, "--log-level", "error")
	cmd.Dir = disk // identifies the process
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return vm.Machine{}, err
	}
	p.work.Go(func() { _ = cmd.Wait() }) // it is killed later
	if _, err := w.Write(boot); err != nil {
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
		return nil, errors.New("the machine's boot is not JSON")
	}
	all["listen"] = address
	return json.Marshal(all)
}

// Destroy kills the machine's processes, waits for their end, and removes the directory. The first
// process of a PID namespace ends after all others.
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

// kill ends a process and polls until it is gone: only its parent would be notified.
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

// startOf returns the start time of a process, and whether it runs.
func startOf(pid int) (start string, running bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// The name in parentheses may contain any character.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return "", false
	}
	// A main thread can end before the others, which still hold the sockets.
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

// List lists the owner's directories.
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

// running returns the processes that started in the directory or name it. The first process of the
// namespace is among them; all others end with it. During an exec a process has no arguments, but
// still its working directory.
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
