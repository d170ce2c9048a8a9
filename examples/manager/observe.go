package main

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/manager"
)

// defaultMetrics is the address of metrics and health. The delegate uses port 3000.
const defaultMetrics = "127.0.0.1:3001"

// serveMetrics serves metrics and health on another address than the API, because the metrics name all accounts.
// Only the operator of the manager may see them.
func serveMetrics(ctx context.Context, c *serverCommand, m *manager.Manager, log zerolog.Logger) (*telemetry.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Metrics(), telemetry.Host(c.LogsDir),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	routes := chi.NewRouter()
	routes.Post("/pause", pause(m, true))
	routes.Post("/resume", pause(m, false))
	routes.Handle("/*", telemetry.Handler(registry, m.LiveChecks(), m.ReadyChecks()))
	return telemetry.ListenAt(ctx, c.HTTPBind, defaultMetrics, routes, log)
}

// pause stops offering work of all accounts, for instance before an upgrade. With on false it resumes.
func pause(m *manager.Manager, on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := m.Pause(r.Context(), on); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// closing calls f with a context of 5 seconds that does not end with ctx.
func closing(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return f(ctx)
}
