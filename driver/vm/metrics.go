package vm

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics returns a collector with the machines of the pools by state, the waiting transactions,
// and the failures. It may be registered once.
func Metrics(pools ...*Pool) prometheus.Collector {
	return poolCollector{
		pools:    pools,
		machines: prometheus.NewDesc("dlite_vm_machines", "Machines of a pool by state: warm, reserved, claimed, creating, destroying.", []string{"pool", "state"}, nil),
		waiting:  prometheus.NewDesc("dlite_vm_waiting", "Transactions that wait for a machine of a pool.", []string{"pool"}, nil),
		failures: prometheus.NewDesc("dlite_vm_failures_total", "Failures of making a machine, of its health and of destroying it.", []string{"pool"}, nil),
	}
}

type poolCollector struct {
	pools                       []*Pool
	machines, waiting, failures *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c poolCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.machines
	out <- c.waiting
	out <- c.failures
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
	}
}
