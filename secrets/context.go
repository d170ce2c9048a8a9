package secrets

import "context"

type contextKey struct{}

// NewContext returns a context that carries the secrets of a task.
func NewContext(ctx context.Context, set *Set) context.Context {
	return context.WithValue(ctx, contextKey{}, set)
}

// FromContext returns the secrets of the task that ctx belongs to, or nil if ctx
// carries none. A handler that receives another secret adds it:
//
//	secrets.FromContext(ctx).Add(token)
func FromContext(ctx context.Context) *Set {
	set, _ := ctx.Value(contextKey{}).(*Set)
	return set
}
