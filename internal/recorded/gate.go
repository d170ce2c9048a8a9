package recorded

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/delegate-io/dlite/driver"
)

// ErrCleanedUp says that a cleanup overtook the creation of a resource.
var ErrCleanedUp = errors.New("the transaction has been cleaned up")

// Gate keeps a cleanup and the creation of what it removes apart: a resource
// that is recorded but not made yet would look like one that is gone, and be
// made after the cleanup. The zero value is ready. It is safe for concurrent
// use, and must not be copied after the first.
type Gate struct {
	mu      sync.Mutex
	entries map[string]*entry // by kind and id, while being created
}

type entry struct {
	condemned bool // guarded by Gate.mu
	done      chan struct{}
}

// Create records r and makes it, unless a cleanup of r comes first: then the
// error is [ErrCleanedUp]. Creations of one resource come one after the other; an
// error is ctx's when ctx ends before r's turn. What build returns is returned as
// it is.
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
	condemned := e.condemned
	g.mu.Unlock()
	if condemned {
		return fmt.Errorf("create %s %s: %w", r.Kind, r.ID, ErrCleanedUp)
	}
	return build()
}

// enter waits until nobody else creates what has this key.
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

// Condemn returns when nobody in this process will make any of rs any more. An
// error is ctx's: they are condemned all the same, and a creation that was under
// way already may still be.
func (g *Gate) Condemn(ctx context.Context, rs []driver.Resource) error {
	var wait []*entry
	g.mu.Lock()
	for _, r := range rs {
		if e := g.entries[keyOf(r)]; e != nil {
			e.condemned = true
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
