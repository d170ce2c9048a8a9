// Package telemetry is what a delegate and a manager have in common for being
// observed: an HTTP server for metrics and health, the host's health, and the
// export of traces (SPEC L3).
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(telemetry.Host(workDir))
//	handler := telemetry.Handler(registry, live, ready)
//	server, err := telemetry.Listen(ctx, ":3000", handler)
//	...
//	defer server.Close(ctx)
//
// What is measured is in poller/observe and manager/observe; docs/observability.md
// has all names. Start reading at server.go.
package telemetry
