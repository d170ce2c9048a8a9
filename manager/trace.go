package manager

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/delegate-io/dlite/task"
)

// The spans of a stage, or of a single task (SPEC L3):
//
//	submit               the call, in the trace that its header traceparent names
//	└ stage, or task     from the submission to the end
//	  ├ queue wait       until a delegate takes it, and again when it comes back
//	  └ acquire          the call that gives a task to a delegate
//	    └ init, execute, cleanup, task: the delegate's, see router/tracing
//
// A task names its stage's span until it is acquired, and its acquire's from then
// on. None has anything of what a submitter wants done, but for ids.

const (
	// scope names who makes the spans.
	scope            = "github.com/delegate-io/dlite/manager"
	accountAttribute = "dlite.account"
)

// extract is r's context with the span that its headers name.
func extract(r *http.Request) context.Context {
	return propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}

// inTrace is ctx in the trace that a task names, unless it is in one already.
func inTrace(ctx context.Context, t *task.Task) context.Context {
	parent, state := t.TraceContext()
	if parent == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
}

// startSubmit begins the span of a submission.
func (m *Manager) startSubmit(ctx context.Context, account string) (context.Context, trace.Span) {
	return m.tracer.Start(ctx, "submit", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String(accountAttribute, account)))
}

// endSubmit ends it. What was wrong with a submission may quote it.
func endSubmit(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "refused")
	}
	span.End()
}

// tracing is the trace of a stage or single task, as far as it is state: its span
// is with the manager that it was submitted to.
type tracing struct {
	Parent string    `json:"parent,omitempty"`
	State  string    `json:"state,omitempty"`
	Since  time.Time `json:"since,omitzero"` // when it began to wait
}

// begin begins the span of a stage or single task. It ends with [core.over], or
// with [Manager.drop] when there is the same already.
func (m *Manager) begin(ctx context.Context, name, account, id string, at time.Time) tracing {
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

// drop forgets a span that tells of nothing.
func (m *Manager) drop(t tracing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.spans, t.Parent)
}

func tracingOf(ctx context.Context) tracing {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return tracing{Parent: c["traceparent"], State: c["tracestate"]}
}

// context is one in the trace.
func (t *tracing) context(ctx context.Context) context.Context {
	if t.Parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}

// span names the trace's span.
func (t *tracing) span() trace.SpanContext {
	return trace.SpanContextFromContext(t.context(context.Background()))
}

// join makes a task a part of the trace.
func (t *tracing) join(to *task.Task) {
	if t.Parent != "" {
		to.Traceparent, to.Tracestate = task.Text(t.Parent), task.Text(t.State)
	}
}

// waited makes the span of a wait that is over.
func (c *core) waited(t tracing, until time.Time) {
	c.later(func(m *Manager) {
		_, span := m.tracer.Start(t.context(context.Background()), "queue wait", trace.WithTimestamp(t.Since))
		span.End(trace.WithTimestamp(until))
	})
}

// over ends the span of a stage or single task, in the process that began it.
func (c *core) over(t tracing, status Status, delegate string, at time.Time) {
	if t.Parent == "" {
		return
	}
	c.everywhere(func(m *Manager) {
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
		if status != Success {
			span.SetStatus(codes.Error, string(status))
		}
		span.End(trace.WithTimestamp(at))
	})
}

// handOver is a task as a delegate gets it, under a span of the call that gave it
// away, which began at some time.
func (m *Manager) handOver(ctx context.Context, t *task.Task, account, delegate string, begun time.Time) *task.Task {
	own := *t
	parent, state := t.TraceContext()
	if parent == "" {
		return &own
	}
	given := tracing{Parent: parent, State: state}
	ctx, span := m.tracer.Start(given.context(ctx), "acquire", trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String(accountAttribute, account), attribute.String("dlite.delegate.id", delegate),
			attribute.String("dlite.task.id", t.ID), attribute.String("dlite.task.type", t.Type),
			attribute.String("dlite.task.kind", task.KindOf(t.Type).String())))
	defer span.End()
	call := tracingOf(ctx)
	call.join(&own)
	return &own
}
