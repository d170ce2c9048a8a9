package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/delegate-io/dlite/driver"
)

// Run runs a step to its end. It writes each byte of the output once to out, and all of it before
// it returns. If ctx ends first, the agent stops the step and the error wraps ctx's error. A
// foreign agent cannot stop a step: its machine must not be used afterwards, and the client reads and
// drops the step's output until the step ends or [Client.Destroy] succeeds.
//
// If an earlier process started a step with the same key, Run follows that step from its first
// byte. The errors wrap [context.DeadlineExceeded] for a time-out, [driver.ErrLost] if the agent
// has lost the step, and [ErrGone].
func (c *Client) Run(ctx context.Context, req *StartStepRequest, out io.Writer) (*driver.Result, error) {
	res, f, err := c.follow(ctx, req, out, true)
	f.Stop()
	return res, err
}

// Attach follows a step that has started, and never starts one. The error is [driver.ErrNotBegun]
// if the agent has no step with that key.
func (c *Client) Attach(ctx context.Context, req *StartStepRequest, out io.Writer) (*driver.Result, *Follower, error) {
	return c.stopUnneeded(c.follow(ctx, req, out, false))
}

// Start starts a detached step and returns when it is ready. The follower copies output until the
// stage is destroyed. The caller must stop it. The follower is nil with an error. A step that is
// not detached runs to its end, without a follower.
func (c *Client) Start(ctx context.Context, req *StartStepRequest, out io.Writer) (*driver.Result, *Follower, error) {
	return c.stopUnneeded(c.follow(ctx, req, out, true))
}

// stopUnneeded stops the follower of a step that is not detached.
func (c *Client) stopUnneeded(res *driver.Result, f *Follower, err error) (*driver.Result, *Follower, error) {
	if err != nil || !res.Detached {
		f.Stop()
		return res, nil, err
	}
	return res, f, nil
}

// Follower copies the output of a detached step.
type Follower struct {
	stop context.CancelCauseFunc
	done chan struct{}
}

// Stop stops copying and returns after the last write. It may be called repeatedly, and on nil.
func (f *Follower) Stop() {
	if f == nil {
		return
	}
	f.stop(errUnfollowed)
	<-f.done
}

// Done is closed after the last output: the stage has been destroyed, or the machine is gone.
func (f *Follower) Done() <-chan struct{} { return f.done }

var errUnfollowed = errors.New("the follower was stopped")

// follow runs a step. The caller must stop the follower, which may be nil.
func (c *Client) follow(ctx context.Context, req *StartStepRequest, out io.Writer, begins bool) (*driver.Result, *Follower, error) {
	fail := func(err error) error { return fmt.Errorf("step %q: %w", req.ID, err) }
	if ctx.Err() != nil {
		return nil, nil, fail(stopped(ctx))
	}
	own, err := c.isOwn(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", stopped(ctx), err)
		}
		return nil, nil, fail(err)
	}
	if !own {
		if err := checkForeign(req); err != nil {
			return nil, nil, fail(err)
		}
	}
	s := newSession(ctx, c, req, out, own)
	res, f, err := s.follow(ctx, begins)
	ending := (*endingError)(nil)
	switch {
	case err == nil || errors.Is(err, driver.ErrNotBegun) || own && errors.As(err, &ending) && ctx.Err() == nil:
		return res, f, err // the text of an agent of ours names the step already
	default:
		return nil, f, fail(err)
	}
}

// follow follows the step to its end, or until a detached step is ready. The caller must stop the
// follower.
func (s *session) follow(ctx context.Context, begins bool) (*driver.Result, *Follower, error) {
	f := s.begin(ctx, begins)
	defer close(s.returned)
	select {
	case <-s.answered:
	case <-ctx.Done():
		s.stop(ctx)
		<-s.answered
	}
	res, err := s.result()
	detached := err == nil && res.Detached
	if !detached && s.answer != nil {
		if lost := s.awaitOutput(); err == nil {
			err = lost
		}
	}
	if err == nil && ctx.Err() == nil {
		s.collect(ctx, res)
	}
	switch {
	case err == nil && (!detached || ctx.Err() == nil):
		return res, f, nil
	case errors.Is(context.Cause(s.lifetime), ErrGone):
		return nil, f, ErrGone
	case ctx.Err() != nil:
		return nil, f, stopped(ctx)
	}
	return nil, f, err
}

// stopped returns the error of a step whose context has ended.
func stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return fmt.Errorf("stopped: %w", err)
	}
	return fmt.Errorf("stopped: %w: %w", cause, err)
}
