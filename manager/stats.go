package manager

import (
	"context"
	"maps"
	"time"

	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// Stats counts what an account's stages and single tasks have done since the
// manager was made, and tells what they do now.
type Stats struct {
	Stages, Tasks WorkStats
	// Requeued counts offers that were withdrawn, refused or not taken in time.
	Requeued int64
	// Retried counts stages that were run again.
	Retried int64
	// DelegatesLost counts delegates that stopped sending heartbeats.
	DelegatesLost int64

	// Waiting is what waits for a delegate, in no order.
	Waiting []queue.Waiting
	// Delegates counts those that are known, by state.
	Delegates map[DelegateState]int
	// Slots are those of the delegates that are alive and have a bound; Unbounded
	// counts those that have none. SlotsUsed are the stages that all delegates
	// have, Running the tasks that they work on.
	Slots, Unbounded, SlotsUsed, Running int
}

// WorkStats counts stages or single tasks.
type WorkStats struct {
	Submitted int64
	// Ended counts by final status.
	Ended map[Status]int64
	// Waits are the times from the submission, or from the last requeueing, until
	// a delegate took them; Durations those from then to the end.
	Waits, Durations Times
}

// Times is how many times were how long.
type Times struct {
	Count int64
	Sum   time.Duration
	// AtMost counts the times of at most each of [TimeBounds].
	AtMost [len(TimeBounds)]int64
}

// TimeBounds are the bounds by which [Times] counts.
var TimeBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 8 * time.Hour,
}

func (t *Times) add(d time.Duration) {
	t.Count++
	t.Sum += d
	for i, bound := range TimeBounds {
		if d <= bound {
			t.AtMost[i]++
		}
	}
}

// Stats returns the counts of an account; they are zero for one that there is
// not. It may be called at any time.
func (m *Manager) Stats(account string) Stats {
	var st Stats
	m.mu.Lock()
	if c := m.counts[account]; c != nil {
		st = c.Stats
		st.Stages.Ended, st.Tasks.Ended = maps.Clone(st.Stages.Ended), maps.Clone(st.Tasks.Ended)
	}
	m.mu.Unlock()
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

// counts is an account's counters. The manager's lock guards it.
type counts struct{ Stats }

// count counts what happens, in the process that the command came from: the
// counts of several managers add up.
func (c *core) count(account string, add func(*Stats)) {
	c.later(func(m *Manager) {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := m.counts[account]
		if n == nil {
			n = &counts{}
			n.Stages.Ended, n.Tasks.Ended = map[Status]int64{}, map[Status]int64{}
			m.counts[account] = n
		}
		add(&n.Stats)
	})
}

// end counts a work's end; a zero start is that of one that never ran.
func (w *WorkStats) end(status Status, start, now time.Time) {
	w.Ended[status]++
	if !start.IsZero() {
		w.Durations.add(now.Sub(start))
	}
}

// Store tells how large the store's log is; the zero value in memory.
func (m *Manager) Store() journal.Stats {
	if m.cfg.Store == nil {
		return journal.Stats{}
	}
	return m.journal.Stats()
}

// Accounts are the ids of the accounts, in no order.
func (m *Manager) Accounts() []string {
	out := make([]string, 0, len(m.secrets))
	for id := range m.secrets {
		out = append(out, id)
	}
	return out
}

// Ready tells whether the manager takes submissions and serves delegates: it is
// not closed, and its store answers. It fails with [ErrClosed] or with what the
// store says, and when ctx has ended.
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

// Alive returns when the manager's state can be had; a manager that is stuck does
// not. A store that is away is no reason to end the process: see Ready. The error
// is always nil.
func (m *Manager) Alive(context.Context) error {
	m.core.mu.Lock()   // waits for whoever is stuck
	m.core.mu.Unlock() //nolint:staticcheck // there is nothing to do with it
	return nil
}
