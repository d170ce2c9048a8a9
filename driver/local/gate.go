package local

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/delegate-io/dlite/driver"
)

// The kinds of resources that this driver records.
const (
	kindDirectory = "directory"
	kindHostDir   = "host-directory"
	kindParent    = "host-parent" // a folder above one; removed only when empty
	kindNetwork   = "network"
	kindContainer = "container"
	kindVolume    = "volume" // of a container
	kindMount     = "mount"  // on the folder of a volume in memory
	kindProcess   = "process"
	kindGroup     = "control-group" // of all processes of a transaction
)

// errCleanedUp says that a cleanup overtook the creation of a resource.
var errCleanedUp = errors.New("the transaction has been cleaned up")

// gate keeps a cleanup and the creation of what it removes apart: a resource
// that is recorded but not made yet would look like one that is gone, and be
// made after the cleanup. The zero value is ready.
type gate struct {
	mu      sync.Mutex
	entries map[string]*gateEntry // by kind and id, while being created
}

type gateEntry struct {
	condemned bool // guarded by gate.mu
	done      chan struct{}
}

// create records r and makes it, unless a cleanup of r comes first. Creations
// of one resource come one after the other.
func (g *gate) create(ctx context.Context, l driver.Ledger, r driver.Resource, create func() error) error {
	key := r.Kind + " " + r.ID
	e := &gateEntry{done: make(chan struct{})}
	for {
		g.mu.Lock()
		busy := g.entries[key]
		if busy == nil {
			if g.entries == nil {
				g.entries = map[string]*gateEntry{}
			}
			g.entries[key] = e
			g.mu.Unlock()
			break
		}
		g.mu.Unlock()
		select {
		case <-busy.done:
		case <-ctx.Done():
			return ctx.Err()
		}
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
		return fmt.Errorf("create %s %s: %w", r.Kind, r.ID, errCleanedUp)
	}
	return create()
}

// condemn returns when nobody in this process will make any of rs any more.
func (g *gate) condemn(ctx context.Context, rs []driver.Resource) error {
	var wait []*gateEntry
	g.mu.Lock()
	for _, r := range rs {
		if e := g.entries[r.Kind+" "+r.ID]; e != nil {
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
