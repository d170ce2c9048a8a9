package task

import "context"

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
