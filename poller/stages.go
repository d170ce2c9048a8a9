package poller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// Stages runs the stages of a delegate. [WithStages] gives them to the poller,
// which calls all these methods. *transaction.Stages and *transaction.Group, for
// several drivers, implement it. Its methods must be safe for concurrent use.
type Stages interface {
	// Slots bounds how many stages run at once. It always returns the same object.
	Slots() *capacity.Slots
	// Recover removes or resumes the stages of an earlier process. It is called
	// before the delegate registers. An error means that no stage can run.
	Recover(ctx context.Context) error
	// Maintain ends stages whose lease has ended and retries failed cleanups, once
	// an interval, until ctx ends.
	Maintain(ctx context.Context, interval time.Duration)
	// CleanUpForgotten ends the stage of a task that the manager has forgotten: no
	// cleanup task will come.
	CleanUpForgotten(ctx context.Context, t *task.Task)
	// CleanUpUnclaimed ends the resumed stages for which no task has come. It is
	// called when the manager has not accepted the previous delegate id.
	CleanUpUnclaimed(ctx context.Context)
	// Close ends all stages and releases the ledger that Recover took. It is called after the
	// last task.
	Close(ctx context.Context) error
}

const (
	maintainInterval = time.Minute
	// closeTimeout bounds the cleanup of open stages at the end.
	closeTimeout = 2 * time.Minute
)

// WithStages has the poller run the life cycle of the delegate's stages. Register
// recovers them before it calls the manager. Poll takes their slots, maintains
// their leases, ends stages that the manager has forgotten, and closes them
// before it returns. Poll can therefore run only once. The router needs the
// routes of the same stages. The default has no stages.
//
//	stages := transaction.New(driver)
//	p := poller.New(c, router.New(stages.Routes()), poller.WithStages(stages))
//	err := p.Run(ctx, 16)
func WithStages(s Stages) Option {
	if s == nil {
		panic("poller: WithStages of nil")
	}
	return func(c *config) { c.stages = s }
}

// recoverStages recovers the stages and the daemon sets once. It returns an error if they
// cannot run.
func (p *Poller) recoverStages(ctx context.Context) error {
	if p.stages == nil && p.daemons == nil || p.recovered.Load() {
		return nil
	}
	select {
	case p.recovering <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.recovering }()
	if p.recovered.Load() {
		return nil
	}
	if p.stages != nil {
		if err := p.stages.Recover(ctx); err != nil {
			return fmt.Errorf("recovering stages: %w", err)
		}
	}
	if p.daemons != nil {
		if err := p.daemons.Recover(ctx); err != nil {
			return fmt.Errorf("recovering daemon sets: %w", err)
		}
	}
	p.recovered.Store(true)
	return nil
}

// maintainStages maintains the stages until the returned function is called,
// which waits for the end of the current cleanup.
func (p *Poller) maintainStages(ctx context.Context) (stop func()) {
	if p.stages == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { p.stages.Maintain(ctx, maintainInterval) })
	return func() {
		cancel()
		running.Wait()
	}
}

// closeStages ends all open stages.
func (p *Poller) closeStages(ctx context.Context) error {
	if p.stages == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if n := p.slots.Used(); n > 0 {
		p.log.Warn().Int("transactions", n).Msg("cleaning up transactions that are still open")
	}
	if err := p.stages.Close(ctx); err != nil {
		return fmt.Errorf("closing stages: %w", err)
	}
	return nil
}
