package manager

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

// The spans of a stage or a single task (rule L3):
//
//	submit               the call, in the trace that its header traceparent names
//	└ stage, or task     from the submission to the end
//	  ├ queue wait       until a delegate acquires it, and again after a requeue
//	  └ acquire          the call that assigns a task to a delegate
//	    └ init, execute, cleanup, task: the delegate's spans, see router/tracing
//
// A task names the span of its stage until it is acquired, and then the span of its
// acquire call. Spans contain ids, but no other part of a submission.

const (
	// scope is the name of the tracer.
	scope            = "github.com/delegate-io/dlite/manager"
	accountAttribute = "dlite.account"
)

// traceContext returns the request's context, with the span that its headers name.
func traceContext(r *http.Request) context.Context {
	return propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}

// taskTraceContext returns ctx in the trace that a task names, unless ctx already
// has a trace.
func taskTraceContext(ctx context.Context, t *task.Task) context.Context {
	parent, state := t.TraceContext()
	if parent == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
}

// startSubmit starts the span of a submission.
func (m *Manager) startSubmit(ctx context.Context, account string) (context.Context, trace.Span) {
	return m.tracer.Start(ctx, "submit", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String(accountAttribute, account)))
}

// endSubmit ends the span of a submission. It leaves out the error, which may quote
// the submission.
func endSubmit(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "refused")
	}
	span.End()
}

// tracing is the trace of a stage or single task, as part of the state. The manager
// that received the submission has the span itself.
type tracing struct {
	Parent string    `json:"parent,omitempty"`
	State  string    `json:"state,omitempty"`
	Since  time.Time `json:"since,omitzero"` // when the wait in the queue began
}

// startSpan starts the span of a stage or single task. [core.endSpan] ends it.
// [Manager.dropSpan] drops it if the stage or task existed before.
func (m *Manager) startSpan(ctx context.Context, name, account, id string, at time.Time) tracing {
	ctx, span := m.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(
		attribute.String(accountAttribute, account), attribute.String("dlite."+name+".id", id)))
	t := tracingOf(ctx)
	if span.IsRecording() {
		m.mu.Lock()
		m.spans[t.Parent] = span
		m.mu.Unlock()
	}
	return t
}

// dropSpan forgets a span without reporting it.
func (m *Manager) dropSpan(t tracing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.spans, t.Parent)
}

func tracingOf(ctx context.Context) tracing {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return tracing{Parent: c["traceparent"], State: c["tracestate"]}
}

// context returns ctx in the trace.
func (t *tracing) context(ctx context.Context) context.Context {
	if t.Parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}

// span returns the trace's span.
func (t *tracing) span() trace.SpanContext {
	return trace.SpanContextFromContext(t.context(context.Background()))
}

// joinTask makes a task a part of the trace.
func (t *tracing) joinTask(to *task.Task) {
	if t.Parent != "" {
		to.SetTraceContext(t.Parent, t.State)
	}
}

// recordWait reports the span of a wait that has ended.
func (c *core) recordWait(t tracing, until time.Time) {
	c.addOwnEffect(func(m *Manager) {
		_, span := m.tracer.Start(t.context(context.Background()), "queue wait", trace.WithTimestamp(t.Since))
		span.End(trace.WithTimestamp(until))
	})
}

// endSpan ends the span of a stage or single task, in the process that started it.
func (c *core) endSpan(t tracing, status api.Status, delegate string, at time.Time) {
	if t.Parent == "" {
		return
	}
	c.addEffect(func(m *Manager) {
		m.mu.Lock()
		span := m.spans[t.Parent]
		delete(m.spans, t.Parent)
		m.mu.Unlock()
		if span == nil {
			return
		}
		span.SetAttributes(attribute.String("dlite.status", string(status)))
		if delegate != "" {
			span.SetAttributes(attribute.String("dlite.delegate.id", delegate))
		}
		if status != api.Success {
			span.SetStatus(codes.Error, string(status))
		}
		span.End(trace.WithTimestamp(at))
	})
}

// acquiredTask returns a copy of a task for a delegate. The task names a new span
// for the acquire call, which began at a given time.
func (m *Manager) acquiredTask(ctx context.Context, t *task.Task, account, delegate string, begun time.Time) *task.Task {
	own := *t
	parent, state := t.TraceContext()
	if parent == "" {
		return &own
	}
	given := tracing{Parent: parent, State: state}
	ctx, span := m.tracer.Start(given.context(ctx), "acquire", trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String(accountAttribute, account), attribute.String("dlite.delegate.id", delegate),
			attribute.String("dlite.task.id", t.ID), attribute.String("dlite.task.type", t.Type),
			attribute.String("dlite.task.kind", taskkind.Of(t.Type).String())))
	defer span.End()
	call := tracingOf(ctx)
	call.joinTask(&own)
	return &own
}
