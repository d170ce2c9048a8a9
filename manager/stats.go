package manager

import (
	"context"
	"maps"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// accountStats counts the stages and single tasks of an account since the start of
// the process, and describes its present state.
type accountStats struct {
	Stages, Tasks workStats
	// Requeued counts offers that were withdrawn, refused or not acquired in time.
	Requeued int64
	// Retried counts stages that were run again.
	Retried int64
	// DelegatesLost counts delegates that stopped sending heartbeats.
	DelegatesLost int64
	// Appended counts steps that were appended to open stages. Open is the number of open
	// stages.
	Appended int64
	Open     int

	// Waiting describes the work that waits for a delegate, in no order.
	Waiting []queue.Waiting
	// Delegates counts the known delegates by state.
	Delegates map[queue.DelegateState]int
	// Slots is the number of slots of the living delegates with a bound. Unbounded
	// is the number of living delegates without one. SlotsUsed is the number of
	// stages that all delegates have. Running is the number of tasks that they run.
	Slots, Unbounded, SlotsUsed, Running int
}

// workStats counts stages or single tasks.
type workStats struct {
	Submitted int64
	// Ended counts by final status.
	Ended map[api.Status]int64
	// Waits are the times from the submission, or the last requeueing, until a
	// delegate acquired the work. Durations are the times from then to the end.
	Waits, Durations durations
}

// durations is a histogram of durations.
type durations struct {
	Count int64
	Sum   time.Duration
	// AtMost counts the durations up to each of durationBounds.
	AtMost [len(durationBounds)]int64
}

// durationBounds are the upper bounds of the histogram's buckets.
var durationBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 8 * time.Hour,
}

func (t *durations) add(d time.Duration) {
	t.Count++
	t.Sum += d
	for i, bound := range durationBounds {
		if d <= bound {
			t.AtMost[i]++
		}
	}
}

// stats returns the statistics of an account. They are zero for an unknown account.
func (m *Manager) stats(account string) accountStats {
	var st accountStats
	m.mu.Lock()
	if c := m.counts[account]; c != nil {
		st = *c
		st.Stages.Ended, st.Tasks.Ended = maps.Clone(st.Stages.Ended), maps.Clone(st.Tasks.Ended)
	}
	m.mu.Unlock()
	m.core.mu.Lock()
	st.Open = m.core.open[account]
	m.core.mu.Unlock()
	st.Waiting = m.core.queue.Waiting(account)
	st.Delegates = map[queue.DelegateState]int{}
	for _, d := range m.core.queue.Delegates(account) {
		st.Delegates[d.State]++
		st.SlotsUsed += d.Stages
		st.Running += d.Running
		switch {
		case d.State != queue.Alive:
		case d.MaxStages == 0:
			st.Unbounded++
		default:
			st.Slots += d.MaxStages
		}
	}
	return st
}

// count changes an account's counters, in the process that sent the command. So the
// counters of several managers add up.
func (c *core) count(account string, add func(*accountStats)) {
	c.addOwnEffect(func(m *Manager) {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := m.counts[account]
		if n == nil {
			n = &accountStats{}
			n.Stages.Ended, n.Tasks.Ended = map[api.Status]int64{}, map[api.Status]int64{}
			m.counts[account] = n
		}
		add(n)
	})
}

// recordEnd counts an end. A zero start means that the work never ran.
func (w *workStats) recordEnd(status api.Status, start, now time.Time) {
	w.Ended[status]++
	if !start.IsZero() {
		w.Durations.add(now.Sub(start))
	}
}

// storeStats returns the size of the store's log. It is zero for a state in memory.
func (m *Manager) storeStats() journal.Stats {
	if m.cfg.Store == nil {
		return journal.Stats{}
	}
	return m.journal.Stats()
}

// Accounts returns the ids of the accounts, in no order.
func (m *Manager) Accounts() []string {
	out := make([]string, 0, len(m.auth.secrets))
	for id := range m.auth.secrets {
		out = append(out, id)
	}
	return out
}

// Ready returns nil if the manager accepts submissions and serves delegates: it is
// open and its store answers. Otherwise it returns [ErrClosed], the store's error,
// or ctx's error.
func (m *Manager) Ready(ctx context.Context) error {
	select {
	case <-m.closing:
		return ErrClosed
	default:
	}
	if err := m.Alive(ctx); err != nil {
		return err
	}
	return m.journal.Ping(ctx)
}

// Alive returns when the manager's lock is free. It does not return if the manager
// is deadlocked. An unavailable store is no reason to restart the process, see
// Ready. The error is always nil.
func (m *Manager) Alive(context.Context) error {
	m.core.mu.Lock()   // waits if the manager is deadlocked
	m.core.mu.Unlock() //nolint:staticcheck // there is nothing to do with it
	return nil
}
