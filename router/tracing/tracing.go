// Package tracing makes a span for each task, in the trace that the manager began
// (rules L3, R3):
//
//	r := router.New(routes, router.WithMiddleware(tracing.Middleware(provider)), router.Standard(log))
//
// It is separate from package router so that the router does not import
// OpenTelemetry.
package tracing

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/internal/outcome"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/delegate-io/dlite/router/tracing"

// Middleware makes a span around everything inside it: "init", "execute",
// "cleanup" or, for a task outside of a stage, "task". Its parent is the span that
// the task names ([task.Task.TraceContext]); without one it begins a trace. The
// handler's context carries the span, and the task in it names the span, so that
// [github.com/delegate-io/dlite/router.Log] and the steps of transactions join the
// trace.
//
// A span has the id, type, kind and code of the task. A step that failed is an
// error. Payload and answer are never recorded. A provider that
// does not record passes the manager's span on. Put Middleware outside of
// router.Standard. It panics when tp is nil.
func Middleware(tp trace.TracerProvider) func(http.Handler) http.Handler {
	if tp == nil {
		panic("tracing: Middleware of a nil provider")
	}
	tracer := tp.Tracer(scope)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, err := task.Decode(r, nil)
			if err != nil { // the handler refuses the task
				next.ServeHTTP(w, r)
				return
			}
			kind := taskkind.Of(t.Type)
			ctx, span := tracer.Start(propagation.TraceContext{}.Extract(r.Context(), carrier{t}), name(kind),
				trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
					attribute.String("dlite.task.id", t.ID), attribute.String("dlite.task.type", t.Type),
					attribute.String("dlite.task.kind", kind.String())))
			own := *t
			propagation.TraceContext{}.Inject(ctx, carrier{&own})
			r = task.WithTask(r.WithContext(ctx), &own)
			if !span.IsRecording() {
				next.ServeHTTP(w, r)
				return
			}
			answer, returned := answers.Watch(w), false
			defer func() {
				code := outcome.FromContext(r.Context()).Code(task.CodeOf(answer.Status, answer.Header()))
				if !returned {
					code = task.Failed
				}
				span.SetAttributes(attribute.String("dlite.task.code", string(code)))
				if code != task.OK {
					span.SetStatus(codes.Error, string(code))
				}
				span.End()
			}()
			next.ServeHTTP(answer, r)
			returned = true
		})
	}
}

func name(k taskkind.Kind) string {
	if k == taskkind.Standalone {
		return "task"
	}
	return k.String()
}

// carrier reads and writes the trace context of a task.
type carrier struct{ task *task.Task }

// Get implements [propagation.TextMapCarrier].
func (c carrier) Get(key string) string {
	parent, state := c.task.TraceContext()
	switch key {
	case "traceparent":
		return parent
	case "tracestate":
		return state
	}
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (c carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		c.task.SetTraceContext(value, string(c.task.Tracestate))
	case "tracestate":
		c.task.SetTraceContext(string(c.task.Traceparent), value)
	}
}

// Keys implements [propagation.TextMapCarrier].
func (c carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
