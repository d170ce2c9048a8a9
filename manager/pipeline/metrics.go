package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metricsTimeout bounds the questions to the database for one reading of the metrics.
const metricsTimeout = 5 * time.Second

// counts counts the runs that this process has started and ended.
type counts struct {
	mu             sync.Mutex
	started, ended map[countKey]int64
}

type countKey struct{ account, status string }

func newCounts() counts { return counts{started: map[countKey]int64{}, ended: map[countKey]int64{}} }

func (c *counts) start(account string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started[countKey{account, ""}]++
}

func (c *counts) end(account, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[countKey{account, status}]++
}

// Metrics returns a Prometheus collector for runs and messages. The counters count in this process, so the
// counters of several services add up. The gauges are read from the database, and the same in all services.
func (s *Service) Metrics() prometheus.Collector {
	name := func(n string) string { return "dlite_pipelines_" + n }
	return &collector{
		service:  s,
		started:  prometheus.NewDesc(name("runs_started_total"), "Runs that this process has started.", []string{"account"}, nil),
		ended:    prometheus.NewDesc(name("runs_ended_total"), "Runs whose end this process has recorded, by status.", []string{"account", "status"}, nil),
		active:   prometheus.NewDesc(name("runs_active"), "Runs that have not ended.", []string{"account"}, nil),
		messages: prometheus.NewDesc(name("messages"), "Messages in the database that are due, by topic. The topics dead/... hold those that cannot be handled.", []string{"topic"}, nil),
	}
}

type collector struct {
	service                          *Service
	started, ended, active, messages *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.started, c.ended, c.active, c.messages} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. If the database does not answer, its metrics are missing.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	n := &c.service.counts
	n.mu.Lock()
	for k, v := range n.started {
		out <- prometheus.MustNewConstMetric(c.started, prometheus.CounterValue, float64(v), k.account)
	}
	for k, v := range n.ended {
		out <- prometheus.MustNewConstMetric(c.ended, prometheus.CounterValue, float64(v), k.account, k.status)
	}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	totals, err := c.service.store.Totals(ctx, time.Now())
	if err != nil {
		return
	}
	for account, v := range totals.Active {
		out <- prometheus.MustNewConstMetric(c.active, prometheus.GaugeValue, float64(v), account)
	}
	for topic, v := range totals.Messages {
		out <- prometheus.MustNewConstMetric(c.messages, prometheus.GaugeValue, float64(v), topic)
	}
}
