package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/delegate-io/dlite/driver"
)

// Run runs a step to its end. Its output goes to out, each byte once, all of it
// before Run returns. When ctx ends first, the step is stopped at an agent of ours
// and the error is ctx's, as driver/local words it; another agent knows no way to
// stop a step, so that its machine must not be used any more.
//
// A step that an earlier process has started under the same key is followed from its
// first byte. The errors wrap [context.DeadlineExceeded] for a time-out,
// [driver.ErrLost] where the agent has forgotten the step, and [ErrGone].
func (c *Client) Run(ctx context.Context, req *StartStepRequest, out io.Writer) (*driver.Result, error) {
	res, f, err := c.follow(ctx, req, out, true)
	f.Stop()
	return res, err
}

// Attach is Run for a step that has begun for certain: it starts nothing. The error
// is [driver.ErrNotBegun] when the agent has none with that key.
func (c *Client) Attach(ctx context.Context, req *StartStepRequest, out io.Writer) (*driver.Result, *Follower, error) {
	return c.settle(c.follow(ctx, req, out, false))
}

// Start starts a detached step and returns when it can be used. The follower goes on
// copying output until the stage is destroyed, or until it is stopped, which
// it has to be; it is nil with an error, and for a step that is not detached, which
// Start runs to its end.
func (c *Client) Start(ctx context.Context, req *StartStepRequest, out io.Writer) (*driver.Result, *Follower, error) {
	return c.settle(c.follow(ctx, req, out, true))
}

// settle stops a follower that is not needed.
func (c *Client) settle(res *driver.Result, f *Follower, err error) (*driver.Result, *Follower, error) {
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

// Stop ends it and returns when it writes no more. It may be called more than once,
// and on nil.
func (f *Follower) Stop() {
	if f == nil {
		return
	}
	f.stop(errUnfollowed)
	<-f.done
}

// Done is closed when there is no more output to come: the stage has been
// destroyed, or the machine is gone.
func (f *Follower) Done() <-chan struct{} { return f.done }

var errUnfollowed = errors.New("nobody follows the step any more")

// follow runs a step. Whatever it returns, the follower has to be stopped; it may be
// nil.
func (c *Client) follow(ctx context.Context, req *StartStepRequest, out io.Writer, begins bool) (*driver.Result, *Follower, error) {
	fail := func(err error) error { return fmt.Errorf("step %q: %w", req.ID, err) }
	if ctx.Err() != nil {
		return nil, nil, fail(stopped(ctx))
	}
	ours, err := c.ours(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", stopped(ctx), err)
		}
		return nil, nil, fail(err)
	}
	if !ours {
		if err := unable(req); err != nil {
			return nil, nil, fail(err)
		}
	}
	s := newSession(c, req, out, ours)
	f := s.begin(ctx, begins)
	defer close(s.settled)
	select {
	case <-s.answered:
	case <-ctx.Done():
		s.stop(ctx)
		<-s.answered
	}
	res, err := s.ending()
	detached := err == nil && res.Detached
	if !detached && s.answer != nil {
		if lost := s.awaitOutput(); err == nil {
			err = lost
		}
	}
	switch {
	case err == nil && (!detached || ctx.Err() == nil):
		return res, f, nil
	case errors.Is(context.Cause(s.life), ErrGone):
		return nil, f, fail(ErrGone)
	case ctx.Err() != nil:
		return nil, f, fail(stopped(ctx))
	case errors.Is(err, driver.ErrNotBegun):
		return nil, f, err
	}
	if told := (*endingError)(nil); errors.As(err, &told) && ours {
		return nil, f, err // says which step already
	}
	return nil, f, fail(err)
}

// stopped is the error of a step whose context has ended.
func stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return fmt.Errorf("stopped: %w", err)
	}
	return fmt.Errorf("stopped: %w: %w", cause, err)
}
