package task

import (
	"context"
	"net/http"
)

type contextKey struct{}

// NewContext returns a context that carries t.
func NewContext(ctx context.Context, t *Task) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// FromContext finds the task that a handler's context carries. Handlers share
// it and must not change it.
func FromContext(ctx context.Context) (*Task, bool) {
	t, ok := ctx.Value(contextKey{}).(*Task)
	return t, ok
}

// WithTask returns r for another task: t is in its context and, as JSON that is
// encoded when somebody reads it, its body. It returns r when that has t already.
// A middleware uses it that changes a task, which it copies first.
func WithTask(r *http.Request, t *Task) *http.Request {
	if old, ok := FromContext(r.Context()); ok && old == t {
		return r
	}
	r = r.WithContext(NewContext(r.Context(), t))
	r.Body, r.ContentLength = &body{task: t}, -1
	return r
}
