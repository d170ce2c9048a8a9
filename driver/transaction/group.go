package transaction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// Group combines the stages of several drivers in one delegate. Its methods call the methods
// of all members. It is safe for concurrent use.
type Group struct {
	members []*Stages
	slots   *capacity.Slots
}

// Join combines the stages of several drivers in one delegate. Each member has its own ledger,
// all members share one [capacity.Slots], and no two members have routes for the same task
// type ([WithInfra]). Join panics otherwise. Join of no stages is valid: such a delegate runs
// no stages.
//
//	slots := capacity.NewSlots(4)
//	stages := transaction.Join(
//		transaction.New(docker, transaction.WithSlots(slots), transaction.WithLedger("state/local")),
//		transaction.New(pods, transaction.WithSlots(slots), transaction.WithLedger("state/kubernetes"),
//			transaction.WithInfra(transaction.Kubernetes)),
//	)
func Join(members ...*Stages) *Group {
	ledgers, types := map[string]bool{}, map[string]bool{}
	for _, m := range members {
		if m.slots != members[0].slots {
			panic("transaction: Join of stages with different slots: give each the same WithSlots")
		}
		if ledgers[m.dir] {
			panic("transaction: Join of stages with the same ledger: give each its own WithLedger")
		}
		ledgers[m.dir] = true
		for typ := range m.routes {
			if types[typ] {
				panic(fmt.Sprintf("transaction: Join of stages with two routes for task type %q: use WithInfra", typ))
			}
			types[typ] = true
		}
	}
	g := &Group{members: members, slots: capacity.NewSlots(0)}
	if len(members) > 0 {
		g.slots = members[0].slots
	}
	return g
}

// Routes returns the handlers of all members by task type, see [Stages.Routes].
func (g *Group) Routes() map[string]task.Handler {
	all := map[string]task.Handler{}
	for _, m := range g.members {
		maps.Copy(all, m.routes)
	}
	return all
}

// Slots returns the slots that the members share. Without members the number of slots is
// unlimited.
func (g *Group) Slots() *capacity.Slots { return g.slots }

// Recover calls [Stages.Recover] of all members, at the same time.
func (g *Group) Recover(ctx context.Context) error {
	return g.each(func(m *Stages) error { return m.Recover(ctx) })
}

// Maintain calls [Stages.Maintain] of all members and returns after ctx has
// ended.
func (g *Group) Maintain(ctx context.Context, interval time.Duration) {
	_ = g.each(func(m *Stages) error { m.Maintain(ctx, interval); return nil })
}

// CleanUpForgotten calls [Stages.CleanUpForgotten] of all members.
func (g *Group) CleanUpForgotten(ctx context.Context, t *task.Task) {
	_ = g.each(func(m *Stages) error { m.CleanUpForgotten(ctx, t); return nil })
}

// CleanUpUnclaimed calls [Stages.CleanUpUnclaimed] of all members.
func (g *Group) CleanUpUnclaimed(ctx context.Context) {
	_ = g.each(func(m *Stages) error { m.CleanUpUnclaimed(ctx); return nil })
}

// Close calls [Stages.Close] of all members, at the same time.
func (g *Group) Close(ctx context.Context) error {
	return g.each(func(m *Stages) error { return m.Close(ctx) })
}

// Stats returns the sums of all members.
func (g *Group) Stats() (sum Stats) {
	for _, m := range g.members {
		one := m.Stats()
		sum.Open += one.Open
		sum.LogBytes += one.LogBytes
		sum.LogsIncomplete += one.LogsIncomplete
	}
	return sum
}

// each calls f for all members at the same time and joins the errors.
func (g *Group) each(f func(*Stages) error) error {
	errs := make([]error, len(g.members))
	var wg sync.WaitGroup
	for i, m := range g.members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
