package provider

import (
	"context"
	"errors"
	"sync"
)

// Creating tracks the machines that a provider is creating. With it, Destroy can end a running
// Create of the same process. The zero value is ready to use. It is safe for concurrent use.
type Creating struct {
	mu    sync.Mutex
	under map[string]*creation // guarded by mu
}

type creation struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// Errors of [Creating].
var (
	ErrDestroyed = errors.New("the machine is being destroyed")
	errTwice     = errors.New("it is being created already")
)

// Begin registers a Create, which calls it first, uses the returned context, and calls end last.
// [Creating.Stop] cancels that context with [ErrDestroyed]. Begin fails if the id is being created
// already.
func (c *Creating) Begin(ctx context.Context, id string) (_ context.Context, end func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	here := &creation{cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under[id] != nil {
		cancel(nil)
		return nil, nil, errTwice
	}
	if c.under == nil {
		c.under = map[string]*creation{}
	}
	c.under[id] = here
	return ctx, func() {
		c.mu.Lock()
		delete(c.under, id)
		c.mu.Unlock()
		cancel(nil)
		close(here.done)
	}, nil
}

// Stop cancels the Create of the id and waits for its end. A Destroy calls it first. Without such
// a Create it does nothing.
func (c *Creating) Stop(ctx context.Context, id string) error {
	c.mu.Lock()
	here := c.under[id]
	c.mu.Unlock()
	if here == nil {
		return nil
	}
	here.cancel(ErrDestroyed)
	select {
	case <-here.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
