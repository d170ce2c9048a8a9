package queuetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/internal/journal"
)

// history drives the managers of one store, and a model of them.
type history struct {
	*model
	t              *testing.T
	ctx            context.Context //nolint:containedctx // of the test
	target         Target
	config         manager.Config
	open           func() journal.Log
	managers       []*manager.Manager
	clock          *clock // nil if the store has its own clock
	in             *account
	operationCount int // number of operations
	previous       snapshot
}

// secrets are the secrets of the accounts. Both accounts use the same names for
// delegates, stages and tasks.
var secrets = map[string]string{
	"acc":   "00000000000000000000000000000001",
	"other": "00000000000000000000000000000002",
}

func start(t *testing.T, rt *rapid.T, target Target) *history {
	h := &history{t: t, ctx: t.Context(), target: target, model: &model{}}
	h.config = manager.Config{Accounts: secrets, StoreKeys: target.Keys, CompactAfter: 8 << 10, MaxFinished: 6, MaxAttempts: 3, Gap: -1}
	h.set = settings{finished: h.config.MaxFinished, attempts: h.config.MaxAttempts}
	h.setTimes(target.OwnClock)
	now := time.Now()
	if !target.OwnClock {
		h.clock = newClock()
		h.config.Clock, now = h.clock, h.clock.Now()
	}
	for _, name := range []string{"acc", "other"} {
		secret, err := token.ParseSecret(secrets[name])
		if err != nil {
			t.Fatal(err)
		}
		tok, err := secret.Issue(name, now, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		h.accounts = append(h.accounts, &account{name: name, token: tok, limits: map[string]int{}})
	}
	h.in = h.accounts[0]
	if target.Store != nil {
		h.open = target.Store(t)
	}
	for range target.Managers {
		h.managers = append(h.managers, h.manager(rt))
	}
	// The schedule gives the manager's loop an alarm at all times.
	h.expect(rt, 200, "PUT", "/api/schedules/yearly", `{"cron":"0 0 1 1 *","task":{"type":"nothing"}}`)
	return h
}

// setTimes sets time-outs that a jump can reach, or that never come if the store has
// its own clock.
func (h *history) setTimes(ownClock bool) {
	unit := time.Second
	if ownClock {
		unit = time.Hour
	}
	h.config.PerpetualLease = min(30*unit, time.Hour)
	for _, d := range []struct {
		model, config *time.Duration
		units         int
	}{
		{&h.set.heartbeat, &h.config.HeartbeatTimeout, 35},
		{&h.set.acquire, &h.config.AcquireTimeout, 20},
		{&h.set.abort, &h.config.AbortGrace, 10},
		{&h.set.answer, &h.config.AnswerGrace, 1},
		{&h.set.forget, &h.config.ForgetLost, 150},
		{&h.set.retention, &h.config.Retention, 200},
		{&h.set.task, &h.config.TaskTimeout, 90},
		{&h.set.cleanup, &h.config.CleanupTimeout, 45},
		{&h.set.queue, &h.config.QueueTimeout, 300},
	} {
		*d.model = time.Duration(d.units) * unit
		*d.config = *d.model
	}
}

func (h *history) manager(rt *rapid.T) *manager.Manager {
	cfg := h.config
	if h.open != nil {
		cfg.Store = h.open()
	}
	m, err := manager.New(cfg)
	if err != nil {
		rt.Fatalf("starting a manager: %v", err)
	}
	return m
}

func (h *history) close() {
	for _, m := range h.managers {
		if err := m.Close(); err != nil {
			h.t.Errorf("closing a manager: %v", err)
		}
	}
}

// some returns a random manager.
func (h *history) some(rt *rapid.T) *manager.Manager {
	if len(h.managers) == 1 {
		return h.managers[0]
	}
	return h.managers[below(rt, "manager", len(h.managers))]
}

// reopen closes a manager and starts another one on the store.
func (h *history) reopen(rt *rapid.T) {
	if h.open == nil {
		rt.Skip("the state is in memory")
	}
	i := below(rt, "which", len(h.managers))
	if err := h.managers[i].Close(); err != nil {
		rt.Fatalf("closing a manager: %v", err)
	}
	h.managers = slices.Delete(h.managers, i, i+1)
	h.managers = slices.Insert(h.managers, i, h.manager(rt))
}

// afterOperation ends an operation: the stages handle the events that it caused.
func (h *history) afterOperation() {
	h.handleEvents()
	h.operationCount++
	if h.clock == nil {
		h.now++ // the order is enough: a later event has a later time
		return
	}
	h.clock.jump(0) // the operation may have made something due, such as a queue time-out
	h.advance(0)
}

// finish ends all work and checks that nothing is left.
func (h *history) finish(rt *rapid.T) {
	for _, a := range h.accounts {
		h.in = a
		for _, d := range slices.Clone(a.delegates) {
			h.unregister(rt, d.id)
			h.afterOperation()
		}
		for _, w := range slices.Clone(a.works) {
			h.abort(rt, w.stage == nil, w.id)
			h.afterOperation()
		}
		for _, w := range a.works {
			if w.state != over {
				rt.Fatalf("%s has not ended:\n%s", w.id, h.story())
			}
		}
	}
	h.compareAll(rt)
	if h.clock == nil {
		return
	}
	h.clock.jump(h.set.retention)
	h.advance(h.set.retention)
	h.compareAll(rt)
	for _, a := range h.accounts {
		if len(a.works)+len(a.delegates) > 0 {
			rt.Fatalf("not all state is gone:\n%s", h.story())
		}
	}
}
