package capacity

import "context"

type contextKey struct{}

// NewContext returns a context that carries the slot of an init task.
func NewContext(ctx context.Context, s *Slot) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext finds the slot that was taken for an init task.
func FromContext(ctx context.Context) (*Slot, bool) {
	s, ok := ctx.Value(contextKey{}).(*Slot)
	return s, ok
}
