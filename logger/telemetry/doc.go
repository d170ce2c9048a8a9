// Package telemetry is what a delegate and a manager have in common for being
// observed: an HTTP server for metrics and health, and the host's health
// (SPEC L3). Package logger/otlp exports traces and logs.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(telemetry.Host(workDir))
//	handler := telemetry.Handler(registry, live, ready)
//	server, err := telemetry.Listen(ctx, ":3000", handler)
//	...
//	defer server.Close(ctx)
//
// What is measured is in poller/metrics, driver/vm and manager; docs/observability.md
// has all names. Start reading at server.go.
package telemetry
