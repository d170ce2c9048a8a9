package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver/local/host/internal/supervisor"
	"github.com/delegate-io/dlite/internal/process"
)

// handshakeLimit limits how long a supervisor takes to prepare its namespaces.
const handshakeLimit = 30 * time.Second

// newborn is a supervisor that waits for its layout. It ends if this process ends.
type newborn struct {
	record process.Record
	conn   net.Conn
}

// launch starts a supervisor in new namespaces.
func (s *supervision) launch() (*newborn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own, other := os.NewFile(uintptr(pair[0]), "supervisor"), os.NewFile(uintptr(pair[1]), "driver")
	defer func() { _ = other.Close() }()
	conn, err := net.FileConn(own)
	_ = own.Close()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(ownProgram, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the program of this process: %w", err), conn.Close())
	}
	program := os.NewFile(uintptr(fd), ownProgram)
	defer func() { _ = program.Close() }()
	cmd := &exec.Cmd{
		Path: s.program.path(), Args: []string{supervisor.Name}, Dir: "/", Env: []string{"GOMAXPROCS=1"}, ExtraFiles: []*os.File{other, program},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC},
	}
	start := cmd.Start
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		a := cmd.SysProcAttr
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		start = func() error { return process.WithDumps(cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &newborn{conn: conn}
	if p.record, err = process.NewRecord(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, conn.Close(), cmd.Process.Kill(), cmd.Wait())
	}
	return p, cmd.Process.Release()
}

// prepare gives the supervisor its layout and waits until it is ready.
func (p *newborn) prepare(ctx context.Context, l *supervisor.Layout) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.conn.Close() })()
	defer func() { _ = p.conn.Close() }()
	var e supervisor.Event
	err := supervisor.Send(p.conn, l)
	if err == nil {
		err = supervisor.Receive(p.conn, &e)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the supervisor does not answer: %w", err)
	case e.Error != "":
		return errors.New(e.Error)
	}
	return nil
}

// endSteps makes the supervisor with a socket in dir end the step only, or all steps, and waits.
func endSteps(ctx context.Context, dir, only string, with process.Patience) error {
	conn, err := dial(dir)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	var e supervisor.Event
	return errors.Join(supervisor.Send(conn, supervisor.Call{End: &with, Only: only}), supervisor.Receive(conn, &e))
}

// dial connects to the supervisor with a socket in dir.
func dial(dir string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: supervisor.SocketPath(d)})
}

// isGone reports whether the supervisor with a socket in dir has ended.
func isGone(dir string) bool {
	conn, err := dial(dir)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}
