package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/delegate-io/dlite/driver"
)

// ledger keeps the resources of a stage in memory. It need not survive the agent: the owner of the
// machine or pod removes that as a whole. The zero value is ready to use.
type ledger struct {
	mu   sync.Mutex
	list []driver.Resource // guarded by mu
}

// Record implements [driver.Ledger].
func (l *ledger) Record(_ context.Context, r driver.Resource) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(r); i >= 0 {
		l.list[i] = r
	} else {
		l.list = append(l.list, r)
	}
	return nil
}

func (l *ledger) index(r driver.Resource) int {
	return slices.IndexFunc(l.list, func(o driver.Resource) bool { return o.Kind == r.Kind && o.ID == r.ID })
}

func (l *ledger) all() []driver.Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}
