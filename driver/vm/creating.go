package vm

import (
	"context"
	"errors"
	"sync"
)

// Creating knows which machines a [Provider] is creating, so that its Destroy can
// end a Create that is under way in the same process. The zero value is ready to
// use, and safe for concurrent use.
type Creating struct {
	mu    sync.Mutex
	under map[string]*creation // guarded by mu
}

type creation struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// What a [Creating] says.
var (
	ErrDestroyed = errors.New("the machine is to be destroyed")
	errTwice     = errors.New("it is being created already")
)

// Begin is the first thing in a Create, which goes on with the context that it
// returns and calls end last. [Creating.Stop] ends that context with
// [ErrDestroyed]. An id that is being created already is an error.
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

// Stop is the first thing in a Destroy: it ends a Create of the id and returns when
// that has returned. Without one it does nothing.
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
