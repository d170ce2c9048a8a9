package manager

import (
	"context"
	"slices"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// lifecycle is the part of the life that stages and single tasks have in common. The
// core's lock guards it.
//
//	submit           start            end
//	-------> QUEUED -------> RUNNING -----> SUCCESS, FAILURE, TIMEOUT or ABORTED
//	            ^               |
//	            +---------------+
//	             requeue or retry
//
// A work in the queue that ends without a start was aborted, or waited for too long.
type lifecycle struct {
	Trace   tracing    `json:"trace,omitzero"`
	Started time.Time  `json:"started,omitzero"` // zero while the current attempt is queued
	Retry   *api.Retry `json:"retry,omitempty"`
}

// kind selects the statistics of stages or of single tasks.
type kind func(*accountStats) *workStats

func stageKind(s *accountStats) *workStats { return &s.Stages }
func taskKind(s *accountStats) *workStats  { return &s.Tasks }

// submitted records that the queue has the work.
func (c *core) submitted(account string, of kind, l *lifecycle) {
	l.Trace.Since = c.at
	c.count(account, func(s *accountStats) { of(s).Submitted++ })
}

// started records that a delegate has acquired the work.
func (c *core) started(account string, of kind, l *lifecycle, at time.Time) {
	waited := at.Sub(l.Trace.Since)
	c.count(account, func(s *accountStats) { of(s).Waits.add(waited) })
	c.recordWait(l.Trace, at)
	l.Started = at
}

// requeued records that the work waits again for its current attempt.
func (l *lifecycle) requeued(at time.Time) { l.Trace.Since, l.Started = at, time.Time{} }

// allowsRetry reports whether the retry policy allows another attempt after some
// attempts, the last of which ended for the reason why: a value of [api.Retry.On]. A work
// that has not started is not retried.
func (l *lifecycle) allowsRetry(attempts int, why string) bool {
	return l.Retry != nil && !l.Started.IsZero() && attempts < l.Retry.MaxAttempts && slices.Contains(l.Retry.On, why)
}

// retried records that the queue has the next attempt.
func (c *core) retried(account string, l *lifecycle) {
	l.requeued(c.at)
	c.count(account, func(s *accountStats) { s.Retried++ })
}

// ended records the end of the last attempt.
func (c *core) ended(account string, of kind, l *lifecycle, status api.Status, delegate string, at time.Time) {
	if l.Started.IsZero() {
		c.recordWait(l.Trace, at)
	}
	started := l.Started
	c.count(account, func(s *accountStats) { of(s).recordEnd(status, started, at) })
	c.endSpan(l.Trace, status, delegate, at)
}

// synced returns the result of get. If get fails, synced reads the store and calls get
// again, because another manager may have just accepted the stage or task.
func synced[T any](ctx context.Context, m *Manager, get func() (T, error)) (T, error) {
	t, err := get()
	if err != nil && m.journal.Sync(ctx) == nil {
		return get()
	}
	return t, err
}

// waitEnded waits until the state that get returns has ended. The channel of get is
// closed when waitEnded has to call get again. If ctx ends or the manager closes first,
// waitEnded returns the current state and an error.
func waitEnded[T any](ctx context.Context, m *Manager, ended func(*T) bool, get func() (T, <-chan struct{}, error)) (T, error) {
	for {
		t, done, err := get()
		if err != nil || ended(&t) {
			return t, err
		}
		if err := m.awaitDone(ctx, done); err != nil {
			if now, _, gone := get(); gone == nil {
				t = now
			}
			return t, err
		}
	}
}

// awaitDone waits until done is closed, ctx ends or the manager closes.
func (m *Manager) awaitDone(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.closing:
		return ErrClosed
	}
}
