package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// Driver is the state that the host steps and the container steps of one driver share. It is safe
// for concurrent use. Use [New].
type Driver struct {
	Config Config
	// ID identifies this driver among the drivers of earlier processes.
	ID string
	// Gate separates the creation of a resource from its cleanup.
	Gate recorded.Gate
	// Scratch keeps the scratch directories of host steps that have ended.
	Scratch ScratchPool

	cleaners []func() Cleaner

	mu        sync.Mutex
	followers map[string]*follower // by resource; guarded by mu
	closed    bool                 // guarded by mu
}

// New checks cfg, fills in its defaults, and returns a driver without steps.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Driver{Config: cfg, ID: recorded.RandomHex(8), followers: map[string]*follower{}}, nil
}

// Log returns the logger of a call: that of ctx, which masks the secrets of its task (rule L1), or
// that of the configuration if ctx has none.
func (d *Driver) Log(ctx context.Context) *zerolog.Logger {
	if log := zerolog.Ctx(ctx); log.GetLevel() != zerolog.Disabled {
		return log
	}
	return &d.Config.Log
}

// AddCleaner registers a part of [Driver.Cleanup]. Parts run in the order of their registration.
// It must not be called after the first cleanup.
func (d *Driver) AddCleaner(begin func() Cleaner) { d.cleaners = append(d.cleaners, begin) }

// Close stops all followers and waits for them.
func (d *Driver) Close() {
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
}

// Backend runs the steps of one kind.
type Backend interface {
	// Check rejects a step that contradicts itself.
	Check(step *stage.Step) error
	// Run executes a step whose files and volumes exist.
	Run(ctx context.Context, r *Run) (*driver.Result, error)
}

// Execute runs a step through b until it ends, or starts a detached step (rules D3 and D4). After the
// step's own time-out, which does not concern a detached step, the error wraps
// [context.DeadlineExceeded].
func (d *Driver) Execute(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger, b Backend,
) (*driver.Result, error) {
	r, err := d.NewRun(env, step, out, l)
	if err != nil {
		return nil, err
	}
	if step.Timeout > 0 && !step.Detach {
		limit := time.Duration(step.Timeout) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, TimeoutError(limit))
		defer cancel()
	}
	if ctx.Err() != nil {
		return nil, r.Fail(Stopped(ctx))
	}
	res, err := r.execute(ctx, b)
	if err != nil || !res.Detached {
		r.Out.Close()
	}
	if err != nil && ctx.Err() != nil && (!errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx))) {
		err = fmt.Errorf("%w (%w)", Stopped(ctx), err)
	}
	if err != nil {
		return nil, r.Fail(err)
	}
	return res, nil
}

// TimeoutError returns the cause of a context that ended at the step's time-out.
func TimeoutError(limit time.Duration) error { return fmt.Errorf("its time-out of %v is over", limit) }

// Stopped returns the error of a step whose context has ended.
func Stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return fmt.Errorf("stopped: %w", err)
	}
	return fmt.Errorf("stopped: %w: %w", cause, err)
}

// follower is a goroutine that serves a step after Execute has returned.
type follower struct {
	stop func() // makes the goroutine end soon; may be called more than once
	done chan struct{}
}

// Follow runs f in a goroutine of the driver. f must end soon when it receives a value from its channel.
// requestStop sends a value, unless one waits to be received; it may be called more than once. Follow
// returns false, without a call of f, if the driver is closed.
func (d *Driver) Follow(key string, f func(stop <-chan struct{})) (requestStop func(), ok bool) {
	stop := make(chan struct{}, 1)
	requestStop = func() {
		select {
		case stop <- struct{}{}:
		default:
		}
	}
	fl := &follower{stop: requestStop, done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return requestStop, false
	}
	d.followers[key] = fl
	go func() {
		defer close(fl.done)
		f(stop)
		d.mu.Lock()
		delete(d.followers, key)
		d.mu.Unlock()
	}()
	return requestStop, true
}

// Unfollow stops the follower of key and waits for it.
func (d *Driver) Unfollow(ctx context.Context, key string) error {
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
