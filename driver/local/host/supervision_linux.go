package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
)

// handshakeLimit limits how long a supervisor takes to prepare its namespaces.
const handshakeLimit = 30 * time.Second

// supervision starts a supervisor for each transaction.
type supervision struct {
	shared *steps.Driver
	own    bool // the steps of each transaction run as a separate user
}

// newSupervision finds out how this machine can separate steps, and logs it.
func newSupervision(shared *steps.Driver) (*supervision, error) {
	s := &supervision{shared: shared, own: os.Geteuid() == 0}
	log := &shared.Config.Log
	err := s.try()
	if err != nil && s.own {
		log.Warn().Err(err).Msg("host steps cannot run as separate users: they run as root and can reach all files of this machine")
		s.own = false
		err = s.try()
	}
	if err != nil {
		return nil, err
	}
	shares := "the network and its ports"
	if !s.own {
		shares += ", and the files of the delegate's user outside of the delegate's directories"
	}
	if sock := "/var/run/docker.sock"; !s.own && unix.Access(sock, unix.W_OK) == nil {
		shares += ", and the Docker engine at " + sock + ", through which a step can reach all of this machine"
	}
	log.Info().Bool("own_users", s.own).Msg("host steps of different stages are separated; they share " + shares)
	return s, nil
}

// try starts a supervisor with the mounts of a transaction and ends it.
func (s *supervision) try() error {
	cfg := &s.shared.Config
	tx := &steps.Transaction{Name: recorded.NewName("try"), Supervisor: &steps.Supervisor{}}
	if s.own {
		tx.Supervisor.User = newUser()
	}
	tx.Dir = filepath.Join(cfg.WorkDir, tx.Name)
	tx.Memory = tx.Dir
	if cfg.MemoryDir != "" {
		tx.Memory = filepath.Join(cfg.MemoryDir, tx.Name)
	}
	for _, dir := range []string{tx.Dir, tx.Memory} {
		defer func() { _ = steps.RemoveTree(dir) }()
		for _, sub := range []string{"", "workspace", "steps", "volumes"} {
			if err := steps.MakeDir(filepath.Join(dir, sub), 0o700); err != nil {
				return err
			}
		}
	}
	l, err := s.layoutOf(tx, &driver.Environment{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeLimit)
	defer cancel()
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	err = p.prepare(ctx, l)
	return errors.Join(err, p.record.Destroy(ctx.Done()))
}

// begin starts the supervisor of a transaction, or keeps one that runs.
func (s *supervision) begin(ctx context.Context, tx *steps.Transaction, env *driver.Environment, l driver.Ledger) error {
	if sv := tx.Supervisor; sv != nil && recordOf(sv).Running() {
		return nil
	}
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("start a supervisor: %w", err)
	}
	tx.Supervisor = &steps.Supervisor{Dir: filepath.Join(tx.Memory, "supervisor"), PID: p.record.PID, Start: p.record.Start}
	if s.own {
		tx.Supervisor.User = newUser()
	}
	r := driver.Resource{Kind: steps.KindSupervisor, ID: tx.Supervisor.Dir, Labels: tx.Labels, Volatile: true}
	if r.Data, err = json.Marshal(p.record); err == nil {
		err = s.shared.Gate.Create(ctx, l, r, func() error {
			if err := steps.RemoveTree(tx.Supervisor.Dir); err != nil { // of a supervisor that has died
				return err
			}
			if err := steps.MakeDir(tx.Supervisor.Dir, 0o700); err != nil {
				return err
			}
			lay, err := s.layoutOf(tx, env)
			if err != nil {
				return err
			}
			return p.prepare(ctx, lay)
		})
	}
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), handshakeLimit)
		defer cancel()
		return fmt.Errorf("start a supervisor: %w", errors.Join(err, p.record.Destroy(stop.Done())))
	}
	return nil
}

func recordOf(s *steps.Supervisor) process.Record { return process.Record{PID: s.PID, Start: s.Start} }

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
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisorName}, Dir: "/", Env: []string{}, ExtraFiles: []*os.File{other},
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
func (p *newborn) prepare(ctx context.Context, l *layout) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.conn.Close() })()
	defer func() { _ = p.conn.Close() }()
	var e event
	err := writeJSON(p.conn, l)
	if err == nil {
		err = readJSON(p.conn, &e)
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

// removeSupervisor kills a supervisor, and with it everything in its namespaces.
func (c *cleanup) removeSupervisor(ctx context.Context, r driver.Resource) error {
	if filepath.Clean(r.ID) != r.ID || filepath.Base(r.ID) != "supervisor" || !steps.IsOurs(filepath.Base(filepath.Dir(r.ID))) {
		return errors.New("the process is not the supervisor of a transaction")
	}
	record, err := readRecord(r)
	if err != nil {
		return err
	}
	if err := record.Destroy(ctx.Done()); err != nil {
		return err
	}
	return steps.RemoveTree(r.ID)
}

// endSupervised asks the steps of a supervisor to end.
func (c *cleanup) endSupervised(ctx context.Context, r driver.Resource) {
	dir, only := r.ID, ""
	if r.Kind == steps.KindProcess {
		dir, only = readSupervised(r).Supervisor.Dir, r.ID
	}
	_ = c.endSteps(ctx, dir, only, c.d.patience())
}

// endSteps makes a supervisor end one step, or all of them, and waits.
func (c *cleanup) endSteps(ctx context.Context, dir, only string, with process.Patience) error {
	conn, err := dial(dir)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	var e event
	return errors.Join(writeJSON(conn, call{End: &with, Only: only}), readJSON(conn, &e))
}

// removeSupervised ends a step of a supervisor that continues.
func (c *cleanup) removeSupervised(ctx context.Context, s supervisedStep, id string) error {
	record := recordOf(s.Supervisor)
	if !record.Running() {
		return nil
	}
	if err := c.endSteps(ctx, s.Supervisor.Dir, id, process.Patience{}); err != nil && record.Running() {
		return fmt.Errorf("ask the supervisor: %w", err)
	}
	return nil
}

// dial connects to the supervisor with a socket in dir.
func dial(dir string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return net.DialUnix("unix", nil, socketAddress(d))
}
