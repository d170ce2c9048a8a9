package poller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

// Daemons runs the daemon sets of a delegate (rule G2). [WithDaemons] gives them to the
// poller. *daemonset.Runner implements it. Its methods must be safe for concurrent use.
type Daemons interface {
	// Recover ends the daemons that an earlier process has left. It is called before the
	// delegate registers. An error means that no daemon can run.
	Recover(ctx context.Context) error
	// Run runs the daemon sets that Apply names until ctx ends, and returns when nothing
	// of them runs. fetch gets tasks of daemon sets from the manager. serve runs a task
	// through the router of the delegate.
	Run(ctx context.Context, fetch func(ctx context.Context, ids []string) ([]*task.Task, error), serve func(ctx context.Context, t *task.Task) *task.Response)
	// Apply gets the daemon sets that the manager wants. It does not wait for them.
	Apply(sets []task.DaemonSet)
	// Report returns the state of the daemon sets, and a channel that is closed when it
	// changes.
	Report() ([]task.DaemonReport, <-chan struct{})
	// Restarts returns how often a daemon was started again, because it had ended, was not
	// healthy, or could not be started. A changed config does not count.
	Restarts() int64
}

// WithDaemons has the poller run the daemon sets that the manager wants on this delegate.
// The client must implement [client.Daemons], otherwise New panics. Poll recovers the
// daemons before it registers, reports them at once when their state changes and otherwise
// every minute, and stops them when a drain is over, before the delegate unregisters. A
// manager without daemon sets is asked every five minutes. Poll can run only once then.
// The router needs the routes of the same daemons. The default has none.
func WithDaemons(d Daemons) Option {
	if d == nil {
		panic("poller: WithDaemons of nil")
	}
	return func(c *config) { c.daemons = d }
}

// Times between reports of daemon sets.
const (
	// reconcileInterval is the time between reports to a manager that does not hold them.
	reconcileInterval = time.Minute
	// reconcileWait is how long a manager may hold a report.
	reconcileWait = 30 * time.Second
	// reconcilePause is the shortest time between reports.
	reconcilePause = 200 * time.Millisecond
	// absentInterval is the longest pause after a manager has refused a report.
	absentInterval = 5 * time.Minute
)

// runDaemons runs the daemon sets until the returned function is called, which waits for
// their end.
func (s *session) runDaemons() (stop func()) {
	if s.daemons == nil {
		return func() {}
	}
	manager := s.client.(client.Daemons) //nolint:forcetypeassert // New has checked it
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.polling))
	var running sync.WaitGroup
	running.Go(func() {
		s.daemons.Run(ctx, func(ctx context.Context, ids []string) ([]*task.Task, error) {
			return manager.DaemonTasks(ctx, s.delegateID(), ids)
		}, s.serveInternal)
	})
	running.Go(func() { s.reconcileLoop(ctx, manager) })
	return func() {
		cancel()
		running.Wait()
	}
}

// serveInternal runs a task that is not the manager's through the router.
func (s *session) serveInternal(ctx context.Context, t *task.Task) *task.Response {
	resp, _ := task.Serve(s.log.WithContext(ctx), s.router, t)
	return resp
}

// reconcileLoop reports the daemon sets and applies the answers until ctx ends.
func (s *session) reconcileLoop(ctx context.Context, manager client.Daemons) {
	failures, absent := newBackOff(shortestPause, longestPause), newBackOff(time.Second, absentInterval)
	cursor, id, told := "", "", false
	for ctx.Err() == nil {
		if now := s.delegateID(); now != id {
			id, cursor = now, ""
			absent.Reset()
		}
		report, changed := s.daemons.Report()
		calling, endCall := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { // a change is reported at once
			select {
			case <-changed:
				endCall()
			case <-calling.Done():
			}
		})
		answer, err := manager.ReconcileDaemons(calling, id, report, client.PollQuery{Wait: reconcileWait, Since: cursor})
		endCall()
		watching.Wait()
		var wait time.Duration
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures.Reset()
			absent.Reset()
			cursor, told = answer.Cursor, false
			s.daemons.Apply(answer.Sets)
			if wait = reconcilePause; !answer.Held {
				wait = jitter(reconcileInterval)
			}
		case hasEnded(changed):
			wait = reconcilePause
		case errors.Is(err, client.ErrGone):
			// It does not know the delegate, which registers again soon, or has no daemon sets.
			if wait = absent.NextBackOff(); !told {
				s.log.Info().Err(err).Msg("the manager takes no reports of daemon sets: running daemons continue")
				told = true
			}
		default:
			wait = failures.NextBackOff()
			s.log.Warn().Err(err).Stringer("next_attempt_in", wait.Round(time.Millisecond)).Msg("cannot report the daemon sets: running daemons continue")
		}
		wake := changed
		if wait <= reconcilePause {
			wake = nil
		}
		pause(ctx, wait, wake)
	}
}

func hasEnded(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
