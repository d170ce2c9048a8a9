package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// Each task is counted under its type and code.
func ExampleNewTasks() {
	tasks, registry := metrics.NewTasks("hello"), prometheus.NewRegistry()
	registry.MustRegister(tasks)
	hello := task.HandlerFunc(func(context.Context, *task.Request[any]) (string, error) { return "hello", nil })
	r := router.New(router.RouteMap{"hello": hello},
		router.WithMiddleware(router.Metrics(tasks.Observe)), router.Standard(zerolog.Nop()))

	_, _ = task.Serve(context.Background(), r, &task.Task{ID: "1", Type: "hello"})
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, series := range families[0].GetMetric() {
		if n := series.GetHistogram().GetSampleCount(); n > 0 {
			fmt.Println(families[0].GetName(), series.GetLabel()[0].GetValue(), series.GetLabel()[1].GetValue(), n)
		}
	}
	// Output: dlite_task_duration_seconds OK hello 1
}
