package main

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// defaultMetrics is the address of metrics and health. The delegate uses port 3000.
const defaultMetrics = "127.0.0.1:3001"

// serveMetrics serves metrics and health on another address than the API, because the metrics name all accounts.
// Only the operator of the manager may see them.
func serveMetrics(ctx context.Context, c *serverCommand, m *manager.Manager, pipelines *pipeline.Service, log zerolog.Logger) (*telemetry.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Metrics(), telemetry.Host(c.LogsDir),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if pipelines != nil {
		registry.MustRegister(pipelines.Metrics())
	}
	routes := chi.NewRouter()
	operator := routes.With(authenticateOperator(c.OperatorToken))
	operator.Post("/pause", pause(m, true))
	operator.Post("/resume", pause(m, false))
	routes.Handle("/*", telemetry.Handler(registry, m.LiveChecks(), m.ReadyChecks()))
	return telemetry.Listen(ctx, c.HTTPBind, defaultMetrics, routes, log)
}

// minOperatorToken is the smallest length of OPERATOR_TOKEN.
const minOperatorToken = 16

// authenticateOperator passes requests with the operator's token on. Every process of the machine can reach the port of
// the metrics, so without a token it refuses all of them.
func authenticateOperator(token string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch {
			case token == "":
				http.Error(w, "this manager takes no calls of an operator: set OPERATOR_TOKEN and restart it", http.StatusForbidden)
			case !ok || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1:
				http.Error(w, "the header must be Authorization: Bearer <OPERATOR_TOKEN>", http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
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
