package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegate-io/dlite/logger/telemetry"
)

func ExampleHandler() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(telemetry.Host(""))
	ready := telemetry.Checks{{Name: "manager", Run: func(context.Context) error { return errors.New("not registered") }}}
	h := telemetry.Handler(registry, nil, ready)

	for _, path := range []string{"/healthz", "/readyz"} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil))
		fmt.Print(rec.Code, " ", rec.Body)
	}
	// Output:
	// 200 {"status":"ok","checks":[]}
	// 503 {"status":"failing","checks":[{"name":"manager","ok":false,"reason":"not registered"}]}
}
