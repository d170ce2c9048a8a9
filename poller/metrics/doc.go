// Package metrics tells Prometheus what a delegate does, and whoever asks whether
// it is well (SPEC L3):
//
//	tasks := metrics.NewTasks(slices.Collect(maps.Keys(routes))...)
//	r := router.New(routes, router.WithMiddleware(router.Metrics(tasks.Observe)))
//	p := poller.New(c, r)
//	registry.MustRegister(tasks, metrics.Poller(p, slots))
//	handler := telemetry.Handler(registry, metrics.Live(p), metrics.Ready(p))
//
// All but the tasks' durations is read from the poller's own counts when it is
// asked for. The labels take few values: task types that have a route, codes,
// kinds and reasons. No task's id, account or payload is among them.
// docs/observability.md has all names.
package metrics
