package capacity

import "context"

type contextKey struct{}

// NewContext returns a copy of ctx that carries the slot of an init task.
func NewContext(ctx context.Context, s *Slot) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext returns the slot that ctx carries.
func FromContext(ctx context.Context) (*Slot, bool) {
	s, ok := ctx.Value(contextKey{}).(*Slot)
	return s, ok
}
