package driver

import (
	"context"
	"slices"
	"sync"
)

type remarksKey struct{}

type remarks struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

// WithRemarks returns a context for a call of a driver, and a function that returns the texts that the
// driver passed to [Remark].
func WithRemarks(ctx context.Context) (with context.Context, list func() []string) {
	r := &remarks{}
	return context.WithValue(ctx, remarksKey{}, r), func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.list)
	}
}

// Remark adds a text to the answer of a cleanup that succeeds. A driver calls it in Cleanup if it removed
// all resources on record, but cannot exclude that something else is left. Without [WithRemarks] it does
// nothing. The text must not contain secrets.
func Remark(ctx context.Context, text string) {
	r, ok := ctx.Value(remarksKey{}).(*remarks)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.list, text) {
		r.list = append(r.list, text)
	}
}
