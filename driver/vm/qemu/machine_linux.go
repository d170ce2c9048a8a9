package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver/vm/internal/provider"
	"github.com/delegate-io/dlite/internal/process"
)

// machine is a QEMU process that this process started.
type machine struct {
	cmd     *exec.Cmd
	dir     string
	monitor *monitor
	agent   *net.UnixConn // host's end of the serial port
	port    *provider.Port
	gone    chan struct{} // closed when the process has ended and is reaped
}

const (
	lockFile = "alive"
	logFile  = "qemu.log"
)

// start starts QEMU in dir, where its files are.
func (c Config) start(ctx context.Context, dir, name string, mem memory, snap *snapshot) (*machine, error) {
	// Only the QEMU process holds this lock, for its whole life.
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close() //nolint:errcheck // nothing is written to it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock the machine's directory: %w", err)
	}
	if c.Image != "" {
		below, format := c.Image, ""
		if snap != nil {
			below, format = snap.disk(), "qcow2"
		}
		if err := c.overlay(ctx, filepath.Join(dir, diskFile), below, format); err != nil {
			return nil, err
		}
	}
	if err := c.chown(dir); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // QEMU writes it
	qmp, qmpEnd, err := pair()
	if err != nil {
		return nil, err
	}
	defer qmpEnd.Close() //nolint:errcheck // QEMU has its own
	agent, agentEnd, err := pair()
	if err != nil {
		_ = qmp.Close()
		return nil, err
	}
	defer agentEnd.Close() //nolint:errcheck // QEMU has its own

	// The machine ends with Destroy, not with a context or the delegate.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.Binary, c.arguments(name, mem, snap != nil)...)
	cmd.Dir, cmd.Env = dir, process.List(process.Environment())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{qmpEnd, agentEnd, lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if mem.shared {
		// A half-made snapshot is found only when the next one is made. With User the kernel
		// ignores this.
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		_, _ = qmp.Close(), agent.Close()
		return nil, fmt.Errorf("start the emulator: %w", err)
	}
	_, _ = qmpEnd.Close(), agentEnd.Close() // otherwise the end of QEMU would not be seen
	m := &machine{cmd: cmd, dir: dir, agent: agent, port: provider.NewPort(agent), gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(m.gone)
	}()
	if m.monitor, err = openMonitor(ctx, qmp); err != nil {
		m.kill()
		_ = qmp.Close()
		return nil, m.explain(err)
	}
	return m, nil
}

// chown gives QEMU's user the directory and the disk. QEMU opens the disk again when a machine
// stops or continues.
func (c Config) chown(dir string) error {
	if c.User == "" {
		return nil
	}
	who, err := user.Lookup(c.User)
	if err != nil {
		return fmt.Errorf("find QEMU's user: %w", err)
	}
	uid, errUID := strconv.Atoi(who.Uid)
	gid, errGID := strconv.Atoi(who.Gid)
	if err := errors.Join(errUID, errGID); err != nil {
		return err
	}
	for _, path := range []string{dir, filepath.Join(dir, diskFile)} {
		if err := os.Chown(path, uid, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// pair returns a socket and the end for QEMU.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// overlay creates a disk that stores the changes to another disk.
func (c Config) overlay(ctx context.Context, path, below, format string) error {
	if format == "" {
		var err error
		if format, err = diskFormat(below); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, c.ImageTool, "create", "-q", "-f", "qcow2", "-F", format, "-b", below, path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("create the machine's disk: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// diskFormat returns qcow2 or raw. QEMU must not guess: a guest could write a qcow2 header to a
// raw disk.
func diskFormat(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if string(magic) == "QFI\xfb" {
		return "qcow2", nil
	}
	return "raw", nil
}

// ready waits for the agent. If that fails, the error quotes the console, which contains no secret
// yet.
func (m *machine) ready(ctx context.Context, limit time.Duration, ask bool) error {
	waiting, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the agent was not ready within %v", limit))
	defer cancel()
	err := m.port.Ready(waiting, ask)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return fmt.Errorf("%w; the end of its console is %q", err, m.monitor.console(asking))
	}
	return m.explain(err)
}

// boot sends the agent its boot.
func (m *machine) boot(ctx context.Context, limit time.Duration, boot func() []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the agent did not apply its boot within %v", limit))
	defer cancel()
	return m.explain(m.port.Boot(ctx, boot))
}

// closeMonitor closes the connections to the machine.
func (m *machine) closeMonitor() {
	_, _ = m.monitor.conn.Close(), m.agent.Close()
	m.monitor, m.port = nil, nil
}

// explain adds QEMU's log to an error that its end caused.
func (m *machine) explain(err error) error {
	const settling = time.Second // sockets close shortly before the process ends
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	select {
	case <-m.gone:
	case <-time.After(settling):
		return err
	}
	return fmt.Errorf("%w: the emulator has ended (%v): %s", err, m.cmd.ProcessState, m.log())
}

// log returns the end of QEMU's log.
func (m *machine) log() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, logFile))
	const tail = 1000
	return string(bytes.TrimSpace(text[max(0, len(text)-tail):]))
}

// kill ends the machine and returns when the process is gone.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	<-m.gone
	_ = m.agent.Close()
	if m.monitor != nil {
		_ = m.monitor.conn.Close()
	}
}
