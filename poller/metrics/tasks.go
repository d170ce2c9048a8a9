package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// other stands for every label value that is not known in advance: a manager can
// send any number of them.
const other = "other"

// codes are the known codes.
var codes = []task.Code{task.OK, task.Failed, task.Timeout, task.Unknown, task.RetryOnOtherDelegate}

// Tasks counts and times handlers, by the type and the code of the task. A step
// that failed counts as FAILED. It is a [prometheus.Collector]
// and safe for concurrent use.
type Tasks struct {
	durations *prometheus.HistogramVec
	byType    map[string]map[task.Code]prometheus.Observer
}

// NewTasks returns the histogram for the given task types, usually those of the
// router's routes. All other types count as one, "other".
func NewTasks(types ...string) *Tasks {
	t := &Tasks{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dlite_task_duration_seconds",
			Help:    "How long handlers ran, by the type and code of the task.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300, 900, 3600},
		}, []string{"type", "code"}),
		byType: map[string]map[task.Code]prometheus.Observer{},
	}
	for _, typ := range slices.Concat(types, []string{other}) {
		t.byType[typ] = map[task.Code]prometheus.Observer{}
		for _, code := range append(slices.Clone(codes), other) {
			// The series exist from the beginning, so that a rate shows the first failure.
			t.byType[typ][code] = t.durations.WithLabelValues(typ, string(code))
		}
	}
	return t
}

// Observe counts one task. It fits [router.Metrics].
func (t *Tasks) Observe(o router.Observation) {
	byCode, ok := t.byType[o.Type]
	if !ok {
		byCode = t.byType[other]
	}
	observer, ok := byCode[o.Code]
	if !ok {
		observer = byCode[other]
	}
	observer.Observe(o.Duration.Seconds())
}

// Describe implements [prometheus.Collector].
func (t *Tasks) Describe(out chan<- *prometheus.Desc) { t.durations.Describe(out) }

// Collect implements [prometheus.Collector].
func (t *Tasks) Collect(out chan<- prometheus.Metric) { t.durations.Collect(out) }
