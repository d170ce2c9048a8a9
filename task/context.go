package task

import (
	"context"
	"net/http"
)

type contextKey struct{}

// NewContext returns a copy of ctx that carries t.
func NewContext(ctx context.Context, t *Task) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// FromContext returns the task that ctx carries. Handlers share the task and must
// not change it.
func FromContext(ctx context.Context) (*Task, bool) {
	t, ok := ctx.Value(contextKey{}).(*Task)
	return t, ok
}

// WithTask returns a copy of r whose context and body carry t. It returns r if r
// carries t already. A middleware that changes a task copies the task and passes
// the copy to WithTask. Reading the body encodes the task.
func WithTask(r *http.Request, t *Task) *http.Request {
	if old, ok := FromContext(r.Context()); ok && old == t {
		return r
	}
	r = r.WithContext(NewContext(r.Context(), t))
	r.Body, r.ContentLength = &lazyBody{task: t}, -1
	return r
}
