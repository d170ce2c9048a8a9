package manager

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// Metrics returns a Prometheus collector for the manager's work, delegates and
// store.
func (m *Manager) Metrics() prometheus.Collector {
	c := &collector{manager: m, sets: sets{known: map[string]map[string]bool{}}}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("dlite_manager_"+name, help, append([]string{"account"}, labels...), nil)
		c.all = append(c.all, d)
		return d
	}
	c.submitted = desc("submitted_total", "Stages and single tasks that were submitted.", "kind")
	c.ended = desc("ended_total", "Stages and single tasks that have ended, by status.", "kind", "status")
	c.wait = desc("queue_wait_seconds", "How long stages and single tasks waited until a delegate took them.", "kind")
	c.duration = desc("duration_seconds", "How long stages and single tasks ran, from when a delegate took them.", "kind")
	c.waiting = desc("queue_waiting", "Stages and single tasks that wait for a delegate, by their selectors.", "kind", "selectors")
	c.oldest = desc("queue_oldest_timestamp_seconds", "When the oldest that waits was submitted.", "kind", "selectors")
	c.requeued = desc("requeued_total", "Offers that were withdrawn, refused or not taken in time.")
	c.retried = desc("retried_total", "Stages that were run again.")
	c.lost = desc("delegates_lost_total", "Delegates that stopped sending heartbeats.")
	c.open = desc("stages_open", "Stages that are held open for further steps.")
	c.appended = desc("steps_appended_total", "Steps that were appended to open stages.")
	c.delegates = desc("delegates", "Delegates by state.", "state")
	c.slots = desc("slots", "Stages that the delegates that are alive and have a bound may run at once.")
	c.unbounded = desc("delegates_unbounded", "Delegates that are alive and have no bound.")
	c.slotsUsed = desc("slots_used", "Stages that delegates have.")
	c.running = desc("tasks_running", "Tasks that delegates work on.")
	c.upgrades = desc("upgrade_delegates", "Delegates of an update: away, returned or failed.", "state")
	c.perpetual = desc("perpetual_tasks", "Perpetual tasks by state: held by a delegate, waiting for one, or paused.", "state")
	c.perpetualFailing = desc("perpetual_failing", "Perpetual tasks whose last run failed.")
	c.perpetualEvents = desc("perpetual_events_waiting", "Events of perpetual tasks that no consumer has taken.")
	c.daemons = desc("daemons", "Daemons that delegates must run: healthy, or not.", "state")
	c.daemonTasks = desc("daemon_tasks", "Tasks of daemon sets.")
	store := func(name, help string) *prometheus.Desc {
		d := prometheus.NewDesc("dlite_manager_store_"+name, help, nil, nil)
		c.all = append(c.all, d)
		return d
	}
	c.storeEntries = store("entries_total", "Entries of the store's log that were carried out, ever.")
	c.storeBytes = store("log_bytes", "What the store's log has grown by since the state was last saved.")
	c.storeSaved = store("saved_timestamp_seconds", "When the state was last saved.")
	c.storePending = store("pending", "Commands that wait for the store.")
	c.storeSetAside = store("set_aside", "Commands of the store that panicked and are left out.")
	return c
}

type collector struct {
	manager *Manager
	sets    sets
	all     []*prometheus.Desc

	submitted, ended, wait, duration, waiting, oldest, requeued, retried, lost, open, appended,
	delegates, slots, unbounded, slotsUsed, running, upgrades, perpetual, perpetualFailing, perpetualEvents, daemons, daemonTasks,
	storeEntries, storeBytes, storeSaved, storePending, storeSetAside *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.all {
		out <- d
	}
}

// The values of the label kind.
const (
	kindStage = "stage"
	kindTask  = "task"
)

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.collectStore(out)
	for _, account := range c.manager.Accounts() {
		st := c.manager.stats(account)
		c.collectWork(out, account, kindStage, &st.Stages)
		c.collectWork(out, account, kindTask, &st.Tasks)
		c.collectWaiting(out, account, st.Waiting)
		counter := func(d *prometheus.Desc, n int64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), account)
		}
		gauge := func(d *prometheus.Desc, n int, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), append([]string{account}, labels...)...)
		}
		counter(c.requeued, st.Requeued)
		counter(c.retried, st.Retried)
		counter(c.lost, st.DelegatesLost)
		counter(c.appended, st.Appended)
		gauge(c.open, st.Open)
		c.manager.core.mu.Lock()
		held, waiting, paused, failing, events := c.manager.core.perpetual.Stats(account)
		c.manager.core.mu.Unlock()
		gauge(c.perpetual, held, "held")
		gauge(c.perpetual, waiting, "waiting")
		gauge(c.perpetual, paused, "paused")
		gauge(c.perpetualFailing, failing)
		gauge(c.perpetualEvents, events)
		for state, label := range map[queue.DelegateState]string{
			queue.Alive: "alive", queue.Draining: "draining", queue.Gone: "lost",
		} {
			gauge(c.delegates, st.Delegates[state], label)
		}
		gauge(c.slots, st.Slots)
		gauge(c.unbounded, st.Unbounded)
		gauge(c.slotsUsed, st.SlotsUsed)
		gauge(c.running, st.Running)
		if u, err := c.manager.Upgrade(account); err == nil {
			gauge(c.upgrades, len(u.Away), "away")
			gauge(c.upgrades, u.Returned, "returned")
			gauge(c.upgrades, len(u.Failed), "failed")
		}
		healthy, unhealthy, tasks := c.manager.countDaemons(account)
		gauge(c.daemons, healthy, "healthy")
		gauge(c.daemons, unhealthy, "unhealthy")
		gauge(c.daemonTasks, tasks)
	}
}

func (c *collector) collectStore(out chan<- prometheus.Metric) {
	s := c.manager.storeStats()
	saved := 0.0
	if !s.Snapshot.Saved.IsZero() {
		saved = float64(s.Snapshot.Saved.UnixNano()) / 1e9
	}
	out <- prometheus.MustNewConstMetric(c.storeEntries, prometheus.CounterValue, float64(s.Position))
	out <- prometheus.MustNewConstMetric(c.storeBytes, prometheus.GaugeValue, float64(s.Bytes))
	out <- prometheus.MustNewConstMetric(c.storeSaved, prometheus.GaugeValue, saved)
	out <- prometheus.MustNewConstMetric(c.storePending, prometheus.GaugeValue, float64(s.Pending))
	out <- prometheus.MustNewConstMetric(c.storeSetAside, prometheus.GaugeValue, float64(s.SetAside))
}

func (c *collector) collectWork(out chan<- prometheus.Metric, account, kind string, w *workStats) {
	out <- prometheus.MustNewConstMetric(c.submitted, prometheus.CounterValue, float64(w.Submitted), account, kind)
	for status, label := range map[api.Status]string{
		api.Success: "success", api.Failure: "failure", api.Timeout: "timeout", api.Aborted: "aborted",
	} {
		out <- prometheus.MustNewConstMetric(c.ended, prometheus.CounterValue, float64(w.Ended[status]), account, kind, label)
	}
	for d, times := range map[*prometheus.Desc]*durations{c.wait: &w.Waits, c.duration: &w.Durations} {
		buckets := make(map[float64]uint64, len(times.AtMost))
		for i, n := range times.AtMost {
			buckets[durationBounds[i].Seconds()] = uint64(n)
		}
		out <- prometheus.MustNewConstHistogram(d, uint64(times.Count), times.Sum.Seconds(), buckets, account, kind)
	}
}

// collectWaiting sums the series that have the same labels.
func (c *collector) collectWaiting(out chan<- prometheus.Metric, account string, waiting []queue.Waiting) {
	type series struct{ kind, selectors string }
	type sum struct {
		count int
		since float64
	}
	sums := map[series]sum{}
	for _, w := range waiting {
		k := series{kindTask, c.sets.label(account, w.Selectors)}
		if w.Stage {
			k.kind = kindStage
		}
		s, ok := sums[k]
		if at := float64(w.Since.UnixMilli()) / 1000; !ok || at < s.since {
			s.since = at
		}
		s.count += w.Count
		sums[k] = s
	}
	for k, s := range sums {
		out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(s.count), account, k.kind, k.selectors)
		out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, s.since, account, k.kind, k.selectors)
	}
}

// LiveChecks returns the checks for a liveness probe. They fail to return if the
// manager is deadlocked.
func (m *Manager) LiveChecks() telemetry.Checks {
	return telemetry.Checks{{Name: "state", Run: func(ctx context.Context) error { return healthError(m.Alive(ctx)) }}}
}

// ReadyChecks returns the checks for a readiness probe: the manager is open and its
// store answers.
func (m *Manager) ReadyChecks() telemetry.Checks {
	return telemetry.Checks{{Name: "manager", Run: func(ctx context.Context) error { return healthError(m.Ready(ctx)) }}}
}

// healthError replaces the text of an error, because a store's error may contain its
// address.
func healthError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrClosed):
		return errors.New("the manager is closed")
	default:
		return errors.New("the store does not answer")
	}
}
