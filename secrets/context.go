package secrets

import (
	"context"
	"maps"
	"slices"
)

type contextKey struct{}

// NewContext returns a context that carries the secrets of the task that is
// handled in it.
func NewContext(ctx context.Context, set *Set) context.Context {
	return context.WithValue(ctx, contextKey{}, set)
}

// FromContext finds the secrets of the task that is handled in ctx, nil when
// nobody has looked for any. A handler that learns of more adds them.
func FromContext(ctx context.Context) *Set {
	set, _ := ctx.Value(contextKey{}).(*Set)
	return set
}

// Learn adds values to the secrets of the task that is handled in ctx, if it has
// a set: a provider's own token, say.
func Learn(ctx context.Context, values ...string) {
	if set := FromContext(ctx); set != nil {
		set.Add(values...)
	}
}

// Include adds the values of another set, as far as they are long enough for
// this one. A nil set has none.
func (s *Set) Include(other *Set) {
	if other == nil || other == s {
		return
	}
	s.Add(other.Values()...)
}

// Values are what the set holds, in no order, for who keeps them in as safe a
// place. Everything else about a set is made not to show them.
func (s *Set) Values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.known))
}
