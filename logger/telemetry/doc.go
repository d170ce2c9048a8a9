// Package telemetry serves metrics and health checks over HTTP, for delegates and
// managers, and collects metrics of the host (rule L3). Package logger/otlp exports
// traces and logs.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(telemetry.Host(workDir))
//	handler := telemetry.Handler(registry, live, ready)
//	server, err := telemetry.Listen(ctx, ":3000", "", handler, log)
//	...
//	defer server.Close(ctx)
//
// Packages poller/metrics, driver/vm and manager define their metrics.
// docs/observability.md lists all names. Start reading at server.go.
package telemetry
