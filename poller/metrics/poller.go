package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/task/capacity"
)

// Poller returns a collector of the counts and the state of p, and of the use of
// slots; slots may be nil.
func Poller(p *poller.Poller, slots *capacity.Slots) prometheus.Collector {
	c := &pollerCollector{poller: p, slots: slots}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("dlite_"+name, help, labels, nil)
		c.all = append(c.all, d)
		return d
	}
	c.running = desc("tasks_running", "Running tasks, by kind.", "kind")
	c.polls = desc("polls_total", "Polls of the manager.")
	c.pollErrors = desc("poll_errors_total", "Polls that failed.")
	c.heartbeats = desc("heartbeats_total", "Heartbeats that the manager accepted.")
	c.heartbeatErrors = desc("heartbeat_errors_total", "Heartbeats that failed.")
	c.contact = desc("manager_contact_timestamp_seconds", "When the manager last accepted a registration or a heartbeat.")
	c.registrations = desc("reregistrations_total", "How often the manager had forgotten the delegate.")
	c.acquired = desc("tasks_acquired_total", "Tasks that the delegate acquired.")
	c.missed = desc("tasks_missed_total", "Failed attempts to acquire a task.")
	c.answers = desc("answers_total", "Answers that the manager accepted, by code.", "code")
	c.undelivered = desc("answers_undelivered_total", "Answers that were given up.")
	c.refusals = desc("refusals_total", "Tasks that were left with the manager, by reason.", "reason")
	c.draining = desc("draining", "1 while the delegate takes no new stages.")
	c.perpetual = desc("perpetual_tasks", "Perpetual tasks that the delegate has.")
	c.perpetualRunning = desc("perpetual_running", "Runs of perpetual tasks that are active.")
	c.perpetualRuns = desc("perpetual_runs_total", "Ended runs of perpetual tasks: ok, failed or cancelled.", "end")
	c.perpetualLost = desc("perpetual_lost_total", "Perpetual tasks whose lease was not renewed in time.")
	c.perpetualRefused = desc("perpetual_refused_total", "Results of perpetual tasks that the manager did not take.")
	c.daemons = desc("daemons", "Daemon sets that the delegate runs, by state: healthy or unhealthy.", "state")
	c.daemonRestarts = desc("daemon_restarts_total", "Restarts of daemons that had ended, were not healthy, or could not be started.")
	if slots != nil {
		c.slotsMax = desc("slots", "Bound of the stages that run at once; +Inf without a bound.")
		c.slotsUsed = desc("slots_used", "Stages between init and cleanup.")
		c.slotsFree = desc("slots_free", "Stages that may still begin; +Inf without a bound.")
	}
	return c
}

type pollerCollector struct {
	poller *poller.Poller
	slots  *capacity.Slots
	all    []*prometheus.Desc

	running, polls, pollErrors, heartbeats, heartbeatErrors, contact, registrations, acquired, missed,
	answers, undelivered, refusals, draining, slotsMax, slotsUsed, slotsFree,
	perpetual, perpetualRunning, perpetualRuns, perpetualLost, perpetualRefused, daemons, daemonRestarts *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *pollerCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.all {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *pollerCollector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st, h := c.poller.Stats(), c.poller.Health()
	counter(c.polls, st.Polls)
	counter(c.pollErrors, st.PollErrors)
	counter(c.heartbeats, st.Heartbeats)
	counter(c.heartbeatErrors, st.HeartbeatErrors)
	counter(c.registrations, st.Registrations)
	counter(c.acquired, st.Acquired)
	counter(c.missed, st.Missed)
	counter(c.undelivered, st.Undelivered)
	rest := int64(0) // of unknown codes
	for _, n := range st.Answered {
		rest += n
	}
	for _, code := range codes {
		counter(c.answers, st.Answered[code], string(code))
		rest -= st.Answered[code]
	}
	counter(c.answers, rest, other)
	for reason, n := range st.Refused {
		counter(c.refusals, n, reason)
	}
	for kind, n := range st.Running {
		gauge(c.running, float64(n), kind)
	}
	if !h.Contact.IsZero() {
		gauge(c.contact, float64(h.Contact.UnixMilli())/1000)
	}
	gauge(c.draining, bit(h.Draining))
	gauge(c.perpetual, float64(st.Perpetual.Held))
	gauge(c.perpetualRunning, float64(st.Perpetual.Running))
	for end, n := range st.Perpetual.Runs {
		counter(c.perpetualRuns, n, end)
	}
	counter(c.perpetualLost, st.Perpetual.Lost)
	counter(c.perpetualRefused, st.Perpetual.Refused)
	for state, n := range st.Daemons {
		gauge(c.daemons, float64(n), state)
	}
	counter(c.daemonRestarts, st.DaemonRestarts)
	if c.slots == nil {
		return
	}
	most, used := math.Inf(1), float64(c.slots.Used())
	if n := c.slots.Max(); n > 0 {
		most = float64(n)
	}
	gauge(c.slotsMax, most)
	gauge(c.slotsUsed, used)
	gauge(c.slotsFree, max(most-used, 0)) // resumed stages may exceed the bound
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
