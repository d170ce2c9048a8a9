package metrics

import "github.com/prometheus/client_golang/prometheus"

// StageStats holds the counts of transactions. A transaction.Stats converts to it.
type StageStats struct {
	Open           int
	LogBytes       int64
	LogsIncomplete int64
}

// Stages returns a collector of the counts of transactions. stats must be safe for
// concurrent use.
func Stages(stats func() StageStats) prometheus.Collector {
	return stages{
		stats: stats,
		open:  prometheus.NewDesc("dlite_transactions_open", "Transactions between init and cleanup.", nil, nil),
		bytes: prometheus.NewDesc("dlite_log_bytes_total", "Output of inits and steps, masked, in bytes.", nil, nil),
		lost:  prometheus.NewDesc("dlite_logs_incomplete_total", "Logs of which a part is lost or may be lost.", nil, nil),
	}
}

type stages struct {
	stats             func() StageStats
	open, bytes, lost *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (s stages) Describe(out chan<- *prometheus.Desc) {
	out <- s.open
	out <- s.bytes
	out <- s.lost
}

// Collect implements [prometheus.Collector].
func (s stages) Collect(out chan<- prometheus.Metric) {
	st := s.stats()
	out <- prometheus.MustNewConstMetric(s.open, prometheus.GaugeValue, float64(st.Open))
	out <- prometheus.MustNewConstMetric(s.bytes, prometheus.CounterValue, float64(st.LogBytes))
	out <- prometheus.MustNewConstMetric(s.lost, prometheus.CounterValue, float64(st.LogsIncomplete))
}
