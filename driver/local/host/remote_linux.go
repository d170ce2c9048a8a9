package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/host/internal/supervisor"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// remote is a step of a supervisor, with its output.
type remote struct {
	conn    net.Conn
	out     io.Writer
	started time.Time
	checked chan supervisor.Checked
	exited  chan struct{}   // closed when the first process has ended
	over    chan struct{}   // closed when the step has ended and its output was passed on
	exit    supervisor.Exit // set before exited is closed
	code    int             // set before over is closed
	err     error           // set before over is closed: the supervisor has died
}

var errSupervisorEnded = errors.New("the supervisor of the transaction's host steps has ended")

// attach makes the first call of a connection, which concerns one step.
func attach(ctx context.Context, dir string, c supervisor.Call, out io.Writer) (*remote, error) {
	conn, err := dial(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSupervisorEnded, err)
	}
	undo := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var e supervisor.Event
	if err = supervisor.Send(conn, c); err == nil {
		err = supervisor.Receive(conn, &e)
	}
	switch {
	case err != nil: // a supervisor that runs answers every call
		err = fmt.Errorf("%w: %w", errSupervisorEnded, err)
	case e.Unknown:
		err = driver.ErrNotBegun
	case e.NoAccess:
		err = fmt.Errorf("%w: %s", os.ErrPermission, e.Error)
	case e.Error != "":
		err = errors.New(e.Error)
	case e.Started == nil:
		err = errors.New("the supervisor gave no answer")
	}
	if !undo() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	r := &remote{
		conn: conn, out: out, started: *e.Started,
		checked: make(chan supervisor.Checked, 1), exited: make(chan struct{}), over: make(chan struct{}),
	}
	go r.read()
	return r, nil
}

// read passes on the output until the step has ended.
func (r *remote) read() {
	defer close(r.over)
	defer func() { _ = r.conn.Close() }()
	exited := false
	leave := func(e supervisor.Exit) {
		if !exited {
			exited, r.exit = true, e
			close(r.exited)
		}
	}
	buf := make([]byte, 64<<10)
	for {
		kind, content, err := supervisor.ReadFrame(r.conn, buf)
		if err != nil {
			r.err = fmt.Errorf("%w: %w", errSupervisorEnded, err)
			leave(supervisor.Exit{Code: 255})
			return
		}
		if kind == supervisor.FrameOutput {
			_, _ = r.out.Write(content)
			continue
		}
		var e supervisor.Event
		if err := json.Unmarshal(content, &e); err != nil {
			r.err = fmt.Errorf("read an event: %w", err)
			leave(supervisor.Exit{Code: 255})
			return
		}
		switch {
		case e.Exited != nil:
			leave(*e.Exited)
		case e.Checked != nil:
			r.checked <- *e.Checked
		case e.Ended != nil:
			r.code = *e.Ended
			leave(supervisor.Exit{Code: r.code})
			return
		}
	}
}

// unansweredLimit is how long a driver waits for the end of a step after all patience is over.
const unansweredLimit = time.Minute

// stop ends the step and waits until nothing of it runs.
func (r *remote) stop(with process.Patience) error {
	_ = supervisor.Send(r.conn, supervisor.Call{Stop: &with})
	limit := time.NewTimer(with.Whole() + unansweredLimit)
	defer limit.Stop()
	select {
	case <-r.over:
	case <-limit.C:
		_ = r.conn.Close()
		<-r.over
		return errors.New("the supervisor does not end the step: its processes may still run")
	}
	return nil
}

// runSupervised runs the step through the supervisor of the transaction.
func (r *run) runSupervised(ctx context.Context) (*driver.Result, error) {
	if err := r.begin(ctx); err != nil { // first, because the order may open directories to more users
		return nil, err
	}
	o, err := r.order()
	if err != nil {
		return nil, err
	}
	res := driver.Resource{Kind: steps.KindProcess, ID: o.ID, Labels: r.Labels(), Volatile: true}
	res.Data, err = json.Marshal(supervisedStep{Supervisor: r.Tx.Supervisor, Files: r.Files.Name, Lines: r.Out.Lines()})
	if err != nil {
		return nil, err
	}
	var p *remote
	err = r.Driver.Gate.Create(ctx, r.Ledger, res, func() (err error) {
		p, err = attach(ctx, r.Tx.Supervisor.Dir, supervisor.Call{Run: o}, r.Out)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start: %w", explainStart(err, r.Step.User))
	}
	return r.followRemote(ctx, p, o.ID)
}

// followRemote follows a step to its end, or until it is ready if it is detached.
func (r *run) followRemote(ctx context.Context, p *remote, marker string) (*driver.Result, error) {
	if r.Step.Detach {
		return r.followDetachedRemote(ctx, p, marker)
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return nil, errors.Join(steps.Stopped(ctx), p.stop(r.patience()))
	}
	if p.err != nil {
		return nil, p.err
	}
	return &driver.Result{ExitCode: p.code}, nil
}

// followDetachedRemote waits until a detached step is ready. The step then runs until Cleanup.
func (r *run) followDetachedRemote(ctx context.Context, p *remote, marker string) (*driver.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	probed, ended := make(chan struct{}), make(chan struct{})
	_, ok := r.Driver.Follow(steps.KindProcess+" "+marker, func(stop <-chan struct{}) {
		defer close(ended)
		select {
		case <-p.over:
		case <-stop:
			cancel(steps.ErrEnded)
			r.logStop(p.stop(process.Patience{}))
		}
		<-probed
	})
	if !ok {
		return nil, errors.Join(steps.ErrClosed, p.stop(process.Patience{}))
	}
	var err error
	if !r.IsAnnounced() {
		err = r.AwaitReady(ctx, &remoteService{p: p})
		if err == nil {
			err = r.Announce(steps.Service{Address: steps.Loopback, Host: true})
		}
	}
	if err != nil {
		r.logStop(p.stop(r.patience()))
	}
	close(probed)
	if err != nil {
		<-ended
		return nil, err
	}
	return &driver.Result{Detached: true}, nil
}

func (r *run) logStop(err error) {
	if err != nil {
		r.Driver.Config.Log.Warn().Str("step", r.Step.ID).Err(err).Msg("cannot stop a host step")
	}
}

// reattach follows a step that an earlier driver started.
func (r *run) reattach(ctx context.Context, record driver.Resource) (*driver.Result, error) {
	data := readSupervised(record)
	var err error
	if r.Volumes, err = steps.FindVolumes(r.Tx, r.Env.Volumes, r.Step.ExtraVolumes); err != nil {
		return nil, err
	}
	if err := r.OpenFiles(data.Files); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	for range data.Lines {
		_, _ = io.WriteString(r.Out, "\n")
	}
	p, err := attach(ctx, data.Supervisor.Dir, supervisor.Call{Attach: record.ID}, r.Out)
	var res *driver.Result
	switch {
	case err == nil:
		limited, stop := r.restOfTimeout(ctx, p.started)
		res, err = r.followRemote(limited, p, record.ID)
		if err == nil {
			r.Finish(ctx, res)
		}
		stop()
	case !errors.Is(err, driver.ErrNotBegun) && ctx.Err() == nil:
		err = fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	if err != nil {
		r.Files.Remove()
	}
	if errors.Is(err, errSupervisorEnded) {
		err = errors.Join(driver.ErrLost, err)
	}
	return res, err
}

// restOfTimeout limits ctx to the rest of the step's time-out.
func (r *run) restOfTimeout(ctx context.Context, started time.Time) (context.Context, context.CancelFunc) {
	if r.Step.Timeout <= 0 || r.Step.Detach {
		return ctx, func() {}
	}
	limit := time.Duration(r.Step.Timeout) * time.Second
	return context.WithDeadlineCause(ctx, started.Add(limit), steps.TimeoutError(limit))
}

// remoteService is a background step of a supervisor that is not ready yet. It implements
// [steps.Probed].
type remoteService struct{ p *remote }

func (s *remoteService) Address() string { return steps.Loopback }

func (s *remoteService) Wake() <-chan struct{} { return s.p.exited }

// Ended implements [steps.Probed].
func (s *remoteService) Ended(context.Context) error {
	select {
	case <-s.p.exited:
	default:
		return nil
	}
	if e := s.p.exit; e.Code != 0 || !e.Remains {
		return steps.EndedError(e.Code, false)
	}
	return nil
}

// Run runs argv in the directory of the step, with its environment and user.
func (s *remoteService) Run(ctx context.Context, argv []string) (int, string, error) {
	if err := supervisor.Send(s.p.conn, supervisor.Call{Check: argv}); err != nil {
		return 0, "", err
	}
	var end error
	done := ctx.Done()
	for {
		select {
		case c := <-s.p.checked:
			if c.Error != "" && end == nil {
				return 0, c.Output, errors.New(c.Error)
			}
			return c.Code, c.Output, end
		case <-done:
			done, end = nil, ctx.Err()
			_ = supervisor.Send(s.p.conn, supervisor.Call{}) // ends the check
		case <-s.p.over:
			return 0, "", errors.Join(end, s.p.err)
		}
	}
}
