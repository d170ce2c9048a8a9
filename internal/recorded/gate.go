package recorded

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/delegate-io/dlite/driver"
)

// ErrCleanedUp means that a cleanup ran before the creation of a resource.
var ErrCleanedUp = errors.New("the transaction has been cleaned up")

// Gate separates the creation of a resource from its cleanup. Without it, a cleanup could miss a
// resource that is recorded but not created yet. The zero value is ready. It is safe for concurrent
// use, and must not be copied after the first use.
type Gate struct {
	mu      sync.Mutex
	entries map[string]*entry // by kind and id, during the creation
}

type entry struct {
	blocked bool // guarded by Gate.mu
	done    chan struct{}
}

// Create records r and calls build, which creates it. If a cleanup of r comes first, the error is
// [ErrCleanedUp]. Creations of one resource run one after the other. If ctx ends before the turn of r,
// Create returns its error. Create returns the error of build unchanged.
func (g *Gate) Create(ctx context.Context, l driver.Ledger, r driver.Resource, build func() error) error {
	key := keyOf(r)
	e, err := g.enter(ctx, key)
	if err != nil {
		return err
	}
	defer func() {
		g.mu.Lock()
		delete(g.entries, key)
		g.mu.Unlock()
		close(e.done)
	}()

	if err := l.Record(ctx, r); err != nil {
		return fmt.Errorf("record %s %s: %w", r.Kind, r.ID, err)
	}
	g.mu.Lock()
	blocked := e.blocked
	g.mu.Unlock()
	if blocked {
		return fmt.Errorf("create %s %s: %w", r.Kind, r.ID, ErrCleanedUp)
	}
	return build()
}

// enter waits until no other call creates the resource with this key.
func (g *Gate) enter(ctx context.Context, key string) (*entry, error) {
	e := &entry{done: make(chan struct{})}
	for {
		g.mu.Lock()
		busy := g.entries[key]
		if busy == nil {
			if g.entries == nil {
				g.entries = map[string]*entry{}
			}
			g.entries[key] = e
			g.mu.Unlock()
			return e, nil
		}
		g.mu.Unlock()
		select {
		case <-busy.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Block returns when no goroutine of this process will create one of rs. If ctx ends first, it returns
// the error of ctx: rs are blocked all the same, but a creation that had begun may complete.
func (g *Gate) Block(ctx context.Context, rs []driver.Resource) error {
	var wait []*entry
	g.mu.Lock()
	for _, r := range rs {
		if e := g.entries[keyOf(r)]; e != nil {
			e.blocked = true
			wait = append(wait, e)
		}
	}
	g.mu.Unlock()
	for _, e := range wait {
		select {
		case <-e.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func keyOf(r driver.Resource) string { return r.Kind + " " + r.ID }
