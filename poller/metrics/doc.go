// Package metrics makes Prometheus collectors and health checks of a delegate (rule
// L3):
//
//	tasks := metrics.NewTasks("hello", "word_count")
//	r := router.New(routes, router.WithMiddleware(router.Metrics(tasks.Observe)), router.Standard(log))
//	p := poller.New(c, r, poller.WithStages(stages))
//	registry.MustRegister(tasks, metrics.Poller(p, stages.Slots()))
//	handler := telemetry.Handler(registry, metrics.Live(p), metrics.Ready(p))
//
// Labels have few values: task types with a route, codes, kinds and reasons. They
// never hold task ids, accounts or payloads. docs/observability.md lists all names.
// Start reading at poller.go.
package metrics
