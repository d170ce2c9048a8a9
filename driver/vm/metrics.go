package vm

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics returns a collector with the machines of the pools by state, the waiting transactions,
// the failures, and what the machines cost. It may be registered once.
func Metrics(pools ...*Pool) prometheus.Collector {
	return poolCollector{
		pools:    pools,
		machines: prometheus.NewDesc("dlite_vm_machines", "Machines of a pool by state: warm, reserved, claimed, creating, destroying.", []string{"pool", "state"}, nil),
		waiting:  prometheus.NewDesc("dlite_vm_waiting", "Transactions that wait for a machine of a pool.", []string{"pool"}, nil),
		needed:   prometheus.NewDesc("dlite_vm_minimum", "Warm machines that the settings, the schedule and the waiting stages ask for.", []string{"pool"}, nil),
		seconds:  prometheus.NewDesc("dlite_vm_machine_seconds_total", "Time of the machines of a pool by use: stage, idle, other (being created or destroyed).", []string{"pool", "use"}, nil),
		cost:     prometheus.NewDesc("dlite_vm_cost_total", "Price of that time, for pools with a price.", []string{"pool", "use"}, nil),
		stages:   prometheus.NewDesc("dlite_vm_stages_total", "Transactions that had a machine of a pool.", []string{"pool"}, nil),
		failures: prometheus.NewDesc("dlite_vm_failures_total", "Failures of making a machine, of its health and of destroying it.", []string{"pool"}, nil),
	}
}

type poolCollector struct {
	pools                                                      []*Pool
	machines, waiting, failures, needed, seconds, cost, stages *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c poolCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.machines
	out <- c.waiting
	out <- c.failures
	out <- c.needed
	out <- c.seconds
	out <- c.cost
	out <- c.stages
}

// Collect implements [prometheus.Collector].
func (c poolCollector) Collect(out chan<- prometheus.Metric) {
	for _, p := range c.pools {
		s, name := p.Stats(), p.Name()
		for state, n := range map[string]int{
			"warm": s.Warm, "reserved": s.Reserved, "claimed": s.Claimed, "creating": s.Creating, "destroying": s.Destroying,
		} {
			out <- prometheus.MustNewConstMetric(c.machines, prometheus.GaugeValue, float64(n), name, state)
		}
		out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(s.Waiting), name)
		out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(s.Failures), name)
		out <- prometheus.MustNewConstMetric(c.needed, prometheus.GaugeValue, float64(p.neededNow()), name)
		spent, stages := p.costs()
		out <- prometheus.MustNewConstMetric(c.stages, prometheus.CounterValue, float64(stages), name)
		for u, d := range spent {
			out <- prometheus.MustNewConstMetric(c.seconds, prometheus.CounterValue, d.Seconds(), name, string(u))
			if p.cfg.Price > 0 {
				out <- prometheus.MustNewConstMetric(c.cost, prometheus.CounterValue, d.Hours()*p.cfg.Price, name, string(u))
			}
		}
	}
}
