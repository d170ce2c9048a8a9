package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/host/internal/supervisor"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
)

// supervision starts a supervisor for each transaction.
type supervision struct {
	shared *steps.Driver
	own    bool // the steps of each transaction run as a separate user
	// abandoned is how long a supervisor waits for a delegate whose directories were removed.
	abandoned time.Duration
	program   *program // nil if supervisors are this program
}

// newSupervision finds out how this machine can separate steps, and logs it.
func newSupervision(shared *steps.Driver) (*supervision, error) {
	s := &supervision{shared: shared, own: os.Geteuid() == 0, abandoned: 10 * time.Minute}
	log := &shared.Config.Log
	err := s.trySmall()
	if err != nil {
		err = s.try()
	}
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

// errNoProgram means that there is no small program.
var errNoProgram = errors.New("no small program was given to Supervise")

// trySmall is try with the small program. After an error, supervisors are this program.
func (s *supervision) trySmall() error {
	content := supervised.Load()
	if content == nil || len(*content) == 0 {
		return errNoProgram
	}
	var err error
	if s.program, err = loadProgram(*content); err == nil {
		err = s.try()
	}
	if err != nil {
		err = errors.Join(err, s.program.close())
		s.program = nil
		s.shared.Config.Log.Debug().Err(err).Msg("the small program of supervisors cannot be started")
	}
	return err
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
	l, err := layoutOf(cfg, tx, &driver.Environment{})
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

// close releases the program. No supervisor may be started then.
func (s *supervision) close() error {
	if s == nil {
		return nil
	}
	return s.program.close()
}

// plan names the supervisor of a transaction. The first host step starts it.
func (s *supervision) plan(tx *steps.Transaction) *steps.Supervisor {
	planned := &steps.Supervisor{Dir: filepath.Join(tx.Memory, "supervisor")}
	if s.own {
		planned.User = newUser()
	}
	return planned
}

// startFile is the name of the file with the record of a supervisor, in its directory, until the supervisor is ready.
const startFile = "starting"

// begin starts the supervisor of the step's transaction, unless an earlier step has started it. A
// supervisor that has been ready and has ended is not started again: the steps that ran would be lost
// without an error.
func (r *run) begin(ctx context.Context) error {
	dir := r.Tx.Supervisor.Dir
	done, err := r.d.starts.enter(ctx, dir)
	if err != nil {
		return err
	}
	defer done()
	ready, err := wasReady(dir)
	if ready || err != nil {
		return err
	}
	err = endStale(ctx, dir)
	if err == nil {
		err = r.startSupervisor(ctx)
	}
	if err != nil {
		return fmt.Errorf("start a supervisor: %w", err)
	}
	return nil
}

// wasReady reports whether a driver has found the supervisor with a directory ready. Only then it may
// have run steps.
func wasReady(dir string) (bool, error) {
	for name, want := range map[string]bool{startFile: false, supervisor.SocketName: true} {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if (err == nil) != want {
			return false, nil
		}
	}
	return true, nil
}

// endStale ends a supervisor that was never ready: its driver was killed during the start. The supervisor may
// have ended by itself, may wait, or may have become ready meanwhile.
func endStale(ctx context.Context, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, startFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Without a whole record, the supervisor has not got its layout and ends by itself.
	if record, readErr := readRecord(driver.Resource{Data: b}); err == nil && readErr == nil {
		err = record.Destroy(ctx.Done())
	} else {
		err = nil
	}
	return errors.Join(err, steps.RemoveTree(dir))
}

// startSupervisor starts a supervisor and waits until it is ready. The supervisor does nothing before it is
// on record.
func (r *run) startSupervisor(ctx context.Context) error {
	p, err := r.d.supervision.launch()
	if err != nil {
		return err
	}
	dir := r.Tx.Supervisor.Dir
	res := driver.Resource{Kind: steps.KindSupervisor, ID: dir, Labels: r.Labels(), Volatile: true}
	if res.Data, err = json.Marshal(p.record); err == nil {
		err = r.Driver.Gate.Create(ctx, r.Ledger, res, func() error {
			if err := steps.MakeDir(dir, 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, startFile), res.Data, 0o600); err != nil {
				return err
			}
			l, err := layoutOf(&r.Driver.Config, r.Tx, r.Env)
			if err != nil {
				return err
			}
			l.Delegate, l.Abandoned = append([]string{r.Tx.Dir}, r.Driver.Config.Hidden...), r.d.supervision.abandoned
			if err := p.prepare(ctx, l); err != nil {
				return err
			}
			return os.Remove(filepath.Join(dir, startFile))
		})
	}
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), handshakeLimit)
		defer cancel()
		return errors.Join(err, p.record.Destroy(stop.Done()), steps.RemoveTree(dir))
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
	_ = endSteps(ctx, dir, only, c.d.patience())
}

// removeSupervised ends a step of a supervisor that continues.
func (c *cleanup) removeSupervised(ctx context.Context, s supervisedStep, id string) error {
	err := endSteps(ctx, s.Supervisor.Dir, id, process.Patience{})
	if err == nil || isGone(s.Supervisor.Dir) {
		return nil
	}
	return fmt.Errorf("ask the supervisor: %w", err)
}
