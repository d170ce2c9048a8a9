package poller

import (
	"sync"
	"sync/atomic"

	"github.com/delegate-io/dlite/task"
)

// The reasons for which a delegate leaves a task with the manager, see [Stats].Refused.
const (
	refusedCapacity   = "capacity"
	refusedThresholds = "thresholds"
	refusedFilter     = "filter"
	refusedDraining   = "draining"
	// refusedMaintenance: see [Poller.SetMaintenance].
	refusedMaintenance = "maintenance"
)

// Stats holds counts since the poller was made.
type Stats struct {
	Polls           int64
	PollErrors      int64
	Heartbeats      int64
	HeartbeatErrors int64
	// Registrations counts the repeated registrations of Poll, because the manager
	// had forgotten the delegate.
	Registrations int64
	// Acquired counts acquired tasks, Missed failed attempts to acquire one.
	Acquired int64
	Missed   int64
	// Answered counts delivered answers by code, Undelivered answers that were given up.
	Answered    map[task.Code]int64
	Undelivered int64
	// Refused counts tasks that were left with the manager, each once for a reason:
	// capacity (no stage slot is free), thresholds (the host is too busy), filter (the
	// filter refused it), draining (the delegate drains) or maintenance.
	Refused map[string]int64
	// Running counts the tasks that run now, by their role in a stage: init, execute,
	// cleanup, or standalone for a task that belongs to no transaction.
	Running map[string]int
	// Perpetual counts perpetual tasks, see [WithPerpetual].
	Perpetual PerpetualStats
	// Daemons counts the daemon sets that run now, by their state: healthy or unhealthy.
	// DaemonRestarts counts the restarts of their daemons, see [Daemons]. Both are zero
	// without [WithDaemons].
	Daemons        map[string]int
	DaemonRestarts int64
}

// PerpetualStats holds counts of perpetual tasks.
type PerpetualStats struct {
	// Held is the number of tasks that the delegate has, Running the runs that are active.
	Held, Running int
	// Runs counts the ended runs: ok, failed or cancelled.
	Runs map[string]int64
	// Lost counts tasks whose lease was not renewed in time, Refused results that the
	// manager did not take.
	Lost, Refused int64
}

// Stats returns the counts. It may be called at any time.
func (p *Poller) Stats() Stats {
	c := &p.counters
	st := Stats{
		Polls: c.polls.Load(), PollErrors: c.pollErrors.Load(),
		Heartbeats: c.heartbeats.Load(), HeartbeatErrors: c.heartbeatErrors.Load(),
		Registrations: c.registrations.Load(), Acquired: c.acquired.Load(), Missed: c.missed.Load(),
		Undelivered: c.undelivered.Load(),
		Perpetual: PerpetualStats{
			Runs: map[string]int64{perpetualOK: 0, perpetualFailed: 0, perpetualCancelled: 0},
			Lost: c.perpetualLost.Load(), Refused: c.perpetualRefused.Load(),
		},
		Answered: map[task.Code]int64{}, Running: map[string]int{},
		Daemons: map[string]int{daemonsHealthy: 0, daemonsUnhealthy: 0},
		Refused: map[string]int64{refusedCapacity: 0, refusedThresholds: 0, refusedFilter: 0, refusedDraining: 0, refusedMaintenance: 0},
	}
	c.mu.Lock()
	for k, n := range c.byCode {
		st.Answered[k] = n
	}
	for k, n := range c.byReason {
		st.Refused[k] = n
	}
	for k, n := range c.byRun {
		st.Perpetual.Runs[k] = n
	}
	c.mu.Unlock()
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s != nil && s.perpetuals != nil {
		st.Perpetual.Held, st.Perpetual.Running = s.perpetuals.counts()
	}
	for _, k := range kinds {
		st.Running[k.String()] = 0
		if s != nil {
			st.Running[k.String()] = s.table.runningOf(k)
		}
	}
	if p.daemons != nil {
		all, _ := p.daemons.Report()
		for _, d := range all {
			if d.Healthy {
				st.Daemons[daemonsHealthy]++
			} else {
				st.Daemons[daemonsUnhealthy]++
			}
		}
		st.DaemonRestarts = p.daemons.Restarts()
	}
	return st
}

// The states of daemon sets, see [Stats].
const (
	daemonsHealthy   = "healthy"
	daemonsUnhealthy = "unhealthy"
)

type counters struct {
	polls, pollErrors, heartbeats, heartbeatErrors atomic.Int64
	registrations, acquired, missed, undelivered   atomic.Int64
	perpetualLost, perpetualRefused                atomic.Int64

	mu       sync.Mutex
	byCode   map[task.Code]int64
	byReason map[string]int64
	byRun    map[string]int64 // runs of perpetual tasks
}

// The ends of runs of perpetual tasks, see [PerpetualStats].
const (
	perpetualOK        = "ok"
	perpetualFailed    = "failed"
	perpetualCancelled = "cancelled"
)

func (c *counters) perpetualRan(end string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byRun == nil {
		c.byRun = map[string]int64{}
	}
	c.byRun[end]++
}

func (c *counters) answered(code task.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byCode == nil {
		c.byCode = map[task.Code]int64{}
	}
	c.byCode[code]++
}

func (c *counters) refused(r string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byReason == nil {
		c.byReason = map[string]int64{}
	}
	c.byReason[r]++
}
