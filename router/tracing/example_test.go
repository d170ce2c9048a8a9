package tracing_test

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/router/tracing"
	"github.com/delegate-io/dlite/task"
)

// A program passes the provider of the OpenTelemetry SDK. The task of the handler's
// context names the span that the steps of a stage continue.
func ExampleMiddleware() {
	hello := task.HandlerFunc(func(_ context.Context, req *task.Request[any]) (string, error) {
		trace, _, _ := req.Task.Span()
		return "in trace " + trace, nil
	})
	r := router.New(router.RouteMap{"hello": hello},
		router.WithMiddleware(tracing.Middleware(noop.NewTracerProvider())), router.Standard(zerolog.Nop()))

	resp, _ := task.Serve(context.Background(), r, &task.Task{
		ID: "1", Type: "hello", Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	fmt.Println(string(resp.Data))
	// Output: "in trace 4bf92f3577b34da6a3ce929d0e0e4736"
}
