package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

// WorkspaceMount is where containers see the transaction's workspace.
const WorkspaceMount = "/workspace"

// Driver runs steps on this machine. It is safe for concurrent use. Use [New].
type Driver struct {
	cfg     *config
	id      string // tells this driver from one of an earlier process
	engine  engine
	gate    recorded.Gate
	cgroups cgroups
	// scratches are the scratch folders of host steps that have ended.
	scratches scratches

	mu        sync.Mutex
	networks  map[string]*networkState // by name; guarded by mu
	followers map[string]*follower     // by resource; guarded by mu
	gone      map[string]struct{}      // containers and volumes removed before their cleanup; guarded by mu
	closed    bool                     // guarded by mu
}

var _ driver.Driver = (*Driver)(nil)

// New makes a driver. It fails when an option is wrong or the work folder
// cannot be used. It contacts no engine.
func New(opts ...Option) (*Driver, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return &Driver{
		cfg:       cfg,
		id:        recorded.RandomHex(8),
		engine:    engine{cli: cfg.docker, given: cfg.docker != nil, host: cfg.dockerHost},
		networks:  map[string]*networkState{},
		followers: map[string]*follower{},
		gone:      map[string]struct{}{},
	}, nil
}

// Infra is "local".
func (d *Driver) Infra() string { return "local" }

// Close ends what the driver still does for detached steps and waits for it:
// detached host steps are killed, since nobody would read their output any more;
// detached containers go on until Cleanup. No method may be called after it.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	fs := make([]*follower, 0, len(d.followers))
	for _, f := range d.followers {
		fs = append(fs, f)
	}
	d.mu.Unlock()
	for _, f := range fs {
		f.stop()
	}
	for _, f := range fs {
		<-f.done
	}
	return d.engine.close()
}

// Execute runs a step to its end, or starts a detached one (SPEC D3, D4). A
// step's own time-out, of which a detached step takes no notice, gives an error
// that wraps [context.DeadlineExceeded].
func (d *Driver) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	tx, err := openTransaction(env)
	if err != nil {
		return nil, err
	}
	if step.Timeout > 0 && !step.Detach {
		limit := time.Duration(step.Timeout) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("its time-out of %v is over", limit))
		defer cancel()
	}
	w := &output{w: out}
	r := &run{d: d, tx: tx, env: env, step: step, out: w, ledger: l}
	if ctx.Err() != nil {
		return nil, r.fail(stopped(ctx))
	}
	res, err := r.execute(ctx)
	if err != nil || !res.Detached {
		w.close()
	}
	if err != nil && ctx.Err() != nil && (!errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx))) {
		err = fmt.Errorf("%w (%w)", stopped(ctx), err)
	}
	if err != nil {
		return nil, r.fail(err)
	}
	return res, nil
}

// run is one step under way.
type run struct {
	d      *Driver
	tx     *transaction
	env    *driver.Environment
	step   *driver.Step
	out    *output
	ledger driver.Ledger

	volumes map[string]*volume
	files   *handover
}

func (r *run) execute(ctx context.Context) (res *driver.Result, err error) {
	if err = checkStep(&r.step.Step); err != nil {
		return nil, err
	}
	if err = r.d.makeVolumes(ctx, r.tx, r.step.ExtraVolumes, r.ledger, r.out); err != nil {
		return nil, err
	}
	if r.volumes, err = findVolumes(r.tx, r.env.Volumes, r.step.ExtraVolumes); err != nil {
		return nil, err
	}
	if r.files, err = r.newHandover(); err != nil {
		return nil, err
	}
	defer func() {
		// A detached step that has started goes on using its files.
		if err != nil || !res.Detached {
			r.files.remove()
		}
	}()
	switch {
	case r.step.Image != "":
		res, err = r.container(ctx)
	case r.step.Plugin != nil:
		res, err = r.plugin(ctx)
	default:
		res, err = r.host(ctx)
	}
	if err != nil {
		return nil, err
	}
	if res.Detached {
		r.files.close()
	} else {
		r.files.collect(res, r.out)
		r.report(ctx, res)
	}
	return res, nil
}

// mask hides secrets in what is about to be shortened.
func (r *run) mask(text string) string {
	if r.env.Mask == nil {
		return text
	}
	return r.env.Mask(text)
}

// fail says which step it was. It is called once, by who was asked for the step.
func (r *run) fail(err error) error { return fmt.Errorf("step %q: %w", r.step.ID, err) }

// stopped is the error of a step whose context has ended.
func stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return fmt.Errorf("stopped: %w", err)
	}
	return fmt.Errorf("stopped: %w: %w", cause, err)
}

// grace is how long the step has between SIGTERM and SIGKILL.
func (r *run) grace() time.Duration {
	if r.step.SoftStop && r.d.cfg.grace == 0 {
		return 10 * time.Second
	}
	return r.d.cfg.grace
}

// follower is what goes on for a detached step after Execute has returned.
type follower struct {
	stop func() // makes it end soon; may be called more than once
	done chan struct{}
}

// follow runs f in a goroutine of the driver's until it returns. It reports
// false, without running f, when the driver is closed.
func (d *Driver) follow(key string, stop func(), f func()) bool {
	fl := &follower{stop: stop, done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.followers[key] = fl
	go func() {
		defer close(fl.done)
		f()
		d.mu.Lock()
		delete(d.followers, key)
		d.mu.Unlock()
	}()
	return true
}

// unfollow waits until nobody follows key any more; what it stands for has been
// removed.
func (d *Driver) unfollow(ctx context.Context, key string) error {
	d.mu.Lock()
	f := d.followers[key]
	d.mu.Unlock()
	if f == nil {
		return nil
	}
	f.stop()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// output serialises writes, and ends them: after an error or close it swallows
// everything, so that a step is never held up by who reads it.
type output struct {
	mu  sync.Mutex
	w   io.Writer // nil when no more is wanted; guarded by mu
	err error     // guarded by mu
	// lines is how many printf has written; guarded by mu.
	lines int
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w != nil {
		if _, err := o.w.Write(b); err != nil {
			o.w, o.err = nil, err
		}
	}
	return len(b), nil
}

// printf writes a line of the driver's own.
func (o *output) printf(format string, args ...any) {
	text := fmt.Sprintf(format+"\n", args...)
	o.mu.Lock()
	o.lines += strings.Count(text, "\n")
	o.mu.Unlock()
	_, _ = io.WriteString(o, text)
}

// said is how many lines printf has written.
func (o *output) said() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = nil
}
