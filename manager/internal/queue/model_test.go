package queue

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/task"
)

// model runs random operations on a queue. After every one it checks the rules that must always
// hold (rules Q1-Q4).
type model struct {
	*replicas
	in     string            // the account of the step
	n      map[string]int    // of names by account: accounts share names
	had    map[string]string // by task: the delegate that has acquired it and not handed it back
	ended  map[string]int    // by task: how often it has ended
	before map[string]string // by work: the delegate that it was offered to
	later  map[string]bool   // works that waited for their time
	plain  bool              // all works and delegates are the same
}

func newModel(t *rapid.T) *model {
	return &model{
		replicas: newReplicas(t, Config{
			HeartbeatTimeout: time.Minute, AcquireTimeout: 20 * time.Second, AbortGrace: 10 * time.Second,
			AnswerGrace: time.Second, ForgetLost: 3 * time.Minute, Retention: 5 * time.Minute, MaxFinished: 8,
			Gap:           rapid.SampledFrom([]time.Duration{0, 15 * time.Second}).Draw(t, "gap"),
			FairRetention: rapid.Bool().Draw(t, "fair retention"),
		}),
		plain: rapid.Bool().Draw(t, "plain"),
		in:    acc, n: map[string]int{},
		had: map[string]string{}, ended: map[string]int{}, before: map[string]string{},
	}
}

func (m *model) name(prefix string) string {
	m.n[m.in]++
	return fmt.Sprint(prefix, m.n[m.in])
}

// of returns the name of something of the account in the maps of the model.
func (m *model) of(id string) string { return m.in + "/" + id }

func (m *model) anyDelegate(t *rapid.T) string {
	ids := []string{"unknown"}
	for _, d := range m.Delegates(m.in) {
		ids = append(ids, d.ID)
	}
	return ids[rapid.IntRange(0, len(ids)-1).Draw(t, "delegate")] // draw an index: ids are random, their order is not
}

// anyTask returns a task, preferably an open one.
func (m *model) anyTask(t *rapid.T) *record {
	var open, all []*record
	if a := m.accounts[m.in]; a != nil {
		for _, r := range a.tasks {
			all = append(all, r)
			if r.State != done {
				open = append(open, r)
			}
		}
	}
	if len(open) > 0 && rapid.IntRange(0, 9).Draw(t, "open") > 0 {
		all = open
	}
	if len(all) == 0 {
		t.Skip("no task")
	}
	slices.SortFunc(all, func(a, b *record) int { return cmp.Compare(a.ID, b.ID) })
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "task")]
}

// The tags include names of delegates.
var tags = []string{"a", "a", "A ", "b", "b", "c", "d1", "d2", "d3"}

func (m *model) anyTags(t *rapid.T) []string {
	if m.plain {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom(tags), 0, 3).Draw(t, "tags")
}

func (m *model) anyTypes(t *rapid.T) []string {
	if m.plain {
		return nil
	}
	return rapid.SampledFrom([][]string{nil, nil, {}, {"init", "custom"}, {"other"}, {"custom"}}).Draw(t, "types")
}

func (m *model) anyGroup(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "p", "p", "q"}).Draw(t, "group")
}

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"register": func(t *rapid.T) {
			if len(m.Delegates(m.in)) >= 4 {
				t.Skip("enough")
			}
			name := m.name("d")
			id := m.Register(m.in, Registration{
				NewID: name, Name: name, Tags: m.anyTags(t), Types: m.anyTypes(t), Group: m.anyGroup(t),
			})
			if rapid.Bool().Draw(t, "bounded") {
				require.NoError(t, m.SetCapacity(m.in, id, rapid.IntRange(1, 3).Draw(t, "max")))
			}
		},
		"heartbeat": func(t *rapid.T) {
			_ = m.Heartbeat(m.in, Registration{ID: m.anyDelegate(t), Draining: rapid.IntRange(0, 5).Draw(t, "drain") == 0})
		},
		"change": func(t *rapid.T) {
			_ = m.Heartbeat(m.in, Registration{
				ID: m.anyDelegate(t), Name: rapid.SampledFrom([]string{"", "", "d1", "d9"}).Draw(t, "name"),
				Tags: m.anyTags(t), Types: m.anyTypes(t), Group: m.anyGroup(t),
			})
		},
		"capacity": func(t *rapid.T) {
			_ = m.SetCapacity(m.in, m.anyDelegate(t), rapid.IntRange(0, 3).Draw(t, "max"))
		},
		"unregister": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				_ = m.Unregister(m.in, m.anyDelegate(t))
			}
		},
		"submit": func(t *rapid.T) {
			id := m.name("w")
			w := &Work{
				ID: id, Stage: rapid.IntRange(0, 3).Draw(t, "single") > 0, Selectors: m.anyTags(t),
				Priority:     Priority(rapid.IntRange(0, 1).Draw(t, "priority")),
				QueueTimeout: rapid.SampledFrom([]time.Duration{0, 90 * time.Second}).Draw(t, "queue"),
				NotBefore:    m.now.Add(rapid.SampledFrom([]time.Duration{-1, 0, 0, 20 * time.Second}).Draw(t, "delay")),
				RunTimeout:   rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "run"),
			}
			w.Groups = rapid.SliceOfN(rapid.SampledFrom([]string{"g", "g", "h", ""}), 0, 3).Draw(t, "groups")
			w.Variants = append(one(id, "init"), one(id, "other")...)
			if !w.Stage {
				w.Variants = one(id, "custom")
			}
			require.NoError(t, m.Submit(m.in, w))
		},
		"acquire": func(t *rapid.T) {
			r := m.anyTask(t)
			d := r.owner.id()
			if rapid.IntRange(0, 4).Draw(t, "other delegate") == 0 {
				d = m.anyDelegate(t)
			}
			if got, err := m.Acquire(m.in, d, r.ID); err == nil && got != nil {
				if h, ok := m.had[m.of(r.ID)]; ok && h != d {
					t.Fatalf("%s and %s have %s", h, d, r.ID)
				}
				m.had[m.of(r.ID)] = d
			}
		},
		"complete": func(t *rapid.T) {
			r := m.anyTask(t)
			d := r.owner.id()
			if rapid.IntRange(0, 4).Draw(t, "other delegate") == 0 {
				d = m.anyDelegate(t)
			}
			_ = m.Complete(m.in, d, r.ID, Answer{
				Outcome: Success, Code: task.OK, Retry: rapid.IntRange(0, 4).Draw(t, "retry") == 0,
				Running: rapid.IntRange(0, 9).Draw(t, "running") == 0,
			})
		},
		"append": func(t *rapid.T) {
			r := m.anyTask(t)
			next := &task.Task{ID: m.name("t"), Type: "step", Timeout: 30_000}
			if rapid.IntRange(0, 4).Draw(t, "detached") == 0 {
				_ = m.AppendDetached(m.in, r.work.ID, next)
			} else if r.work.first.State == done {
				_ = m.Append(m.in, r.work.ID, next)
			}
		},
		"retry": func(t *rapid.T) {
			w := m.anyTask(t).work
			for _, r := range slices.Collect(w.tasks) { // so that Retry succeeds
				if r.State == acquired && !r.Detached {
					_ = m.Complete(m.in, r.owner.id(), r.ID, Answer{Outcome: Failure})
				}
			}
			next := m.name("t")
			delay := time.Duration(rapid.IntRange(0, 60).Draw(t, "delay")) * time.Second
			_ = m.Retry(m.in, w.ID, one(next, rapid.SampledFrom([]string{"init", "other"}).Draw(t, "type")), m.now.Add(delay))
		},
		"release": func(t *rapid.T) { _ = m.Release(m.in, m.anyTask(t).work.ID) },
		"abort":   func(t *rapid.T) { _ = m.Abort(m.in, m.anyTask(t).ID, "because") },
		"advance": func(t *rapid.T) {
			m.advance(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
		},
		"drain": func(t *rapid.T) {
			_ = m.SetDraining(m.in, m.anyDelegate(t), rapid.Bool().Draw(t, "draining"))
		},
		"unaware": func(t *rapid.T) {
			_ = m.SetUnaware(m.in, m.anyDelegate(t), rapid.Bool().Draw(t, "unaware"))
		},
		"pause": func(t *rapid.T) { m.Pause(m.in, rapid.IntRange(0, 2).Draw(t, "paused") == 0) },
		"limit": func(t *rapid.T) {
			m.SetLimit(m.in, rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group"), rapid.IntRange(0, 3).Draw(t, "most"))
		},
		"reload": func(t *rapid.T) {
			m.reload(rapid.SampledFrom([]**Queue{&m.Queue, &m.twin}).Draw(t, "replica"))
		},
	}
}

// follow checks the events of a step and counts the moves of works.
func (m *model) follow(t require.TestingT) (moved int) {
	for _, e := range m.events() {
		switch e.Kind {
		case Requeued:
			delete(m.had, e.Account+"/"+e.Task)
			moved++
		case Ended:
			delete(m.had, e.Account+"/"+e.Task)
			id := e.Account + "/" + e.Task
			m.ended[id]++
			require.Equal(t, 1, m.ended[id], "%s ends once", id)
			require.NotEmpty(t, e.Result.Outcome)
			moved++
		default:
		}
	}
	return moved
}

// check checks the rules that must always hold.
func (m *model) check(t *rapid.T) {
	moved := m.follow(t) + m.come()
	m.alike()
	kept, before := 0, map[string]string{}
	for id, a := range m.accounts {
		m.in = id
		for _, w := range a.works {
			m.checkWork(t, a, w)
			switch w.State {
			case over:
				kept++
			case given:
				before[m.of(w.ID)] = w.delegate.info.ID
			default:
			}
		}
		for _, d := range a.delegates {
			m.checkDelegate(t, a, d, moved <= 1)
		}
		checkIndex(t, a)
	}
	m.before = before
	require.Equal(t, kept, m.finished.size)
}

// come counts the works whose time has come.
func (m *model) come() (n int) {
	waits := map[string]bool{}
	for id, a := range m.accounts {
		for _, w := range a.works {
			if of := id + "/" + w.ID; w.State == later {
				waits[of] = true
			} else if m.later[of] {
				n++
			}
		}
	}
	m.later = waits
	return n
}

// checkWork checks that a work is in one place, according to its state.
func (m *model) checkWork(t *rapid.T, a *account, w *work) {
	places := 0
	for _, r := range a.requirements {
		for o := range r.works.all() {
			if o.of == w {
				places++
				require.Same(t, r, w.requirement)
			}
		}
	}
	slots, open := 0, 0
	for _, d := range a.delegates {
		if d.slots[w.ID] == w {
			slots++
			require.Same(t, d, w.delegate)
		}
		if d.open[w.first.ID] == w.first {
			open++
			require.Same(t, d, w.first.owner)
		}
	}
	waits := w.State == pending && w.first.State == idle
	if waits {
		p, err := m.Place(m.in, w.ID)
		require.NoError(t, err)
		require.Equal(t, scanNumber(w), p.Number)
		require.Contains(t, p.Reason, scanReason(w))
		if w.Stage {
			require.Equal(t, p.Number, m.Places(m.in)[w.ID].Number)
		}
	}
	require.Equal(t, waits, places == 1, "%s waits in one place", w.ID)
	require.LessOrEqual(t, places+slots, 1, "%s is in two places", w.ID)
	switch {
	case w.State == over:
		require.Zero(t, slots, "%s has ended and holds a slot", w.ID)
	case w.Stage && (w.State == given || w.State == running) && a.delegates[w.delegate.info.ID] == w.delegate:
		require.Equal(t, 1, slots, "%s holds its slot", w.ID)
	}
	require.Equal(t, w.first.State == offered || w.first.State == acquired, open == 1)
}

// checkDelegate checks that a delegate has no more stages than slots, that no work waits
// that it may have, and that its new works come before all others that it may have.
func (m *model) checkDelegate(t *rapid.T, a *account, d *delegate, inOrder bool) {
	stagesOffered := 0
	for _, w := range d.offered() {
		if w.Stage {
			stagesOffered++
		}
	}
	if d.Max > 0 && stagesOffered > 0 {
		require.LessOrEqual(t, len(d.slots), d.Max, "more stages than slots")
	}
	if d.Lost || d.info.Draining || d.Drained || a.gate.closed {
		require.Empty(t, d.offered(), "it takes nothing")
	}
	for id, r := range d.stops {
		require.Same(t, a.tasks[id], r, "it is to stop a forgotten task")
		require.Same(t, d, r.owner)
	}
	for w := range waitingWorks(a) {
		ok := d.eligible(w) && !blocked(w)
		require.False(t, ok && d.hasRoom(w), "%s waits and %s is free", w.ID, d.info.Name)
		if !ok || !inOrder {
			continue
		}
		for _, o := range d.offered() {
			if m.before[m.of(o.ID)] != d.info.ID && o.Stage && w.Stage {
				require.Negative(t, scanCompare(o, w), "%s was given away before %s", o.ID, w.ID)
			}
		}
	}
}

// Rules Q1-Q4 hold after random operations, and each decision is the one of a scan. For
// 100,000 steps and more: -rapid.checks=3000 -rapid.steps=60.
func TestTheQueueKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		actions := m.actions()
		for name, act := range actions {
			actions[name] = func(t *rapid.T) {
				m.in = rapid.SampledFrom([]string{acc, acc, acc, "other"}).Draw(t, "account")
				act(t)
			}
		}
		actions[""] = m.check
		t.Repeat(actions)
		for _, m.in = range []string{acc, "other"} {
			m.endAll(t)
		}
		m.finishAll(t)
	})
}

// endAll ends all works of an account and removes its delegates.
func (m *model) endAll(t *rapid.T) {
	for _, d := range m.Delegates(m.in) {
		require.NoError(t, m.Unregister(m.in, d.ID))
	}
	m.follow(t)
	a := m.accounts[m.in]
	if a == nil {
		return
	}
	for id := range a.works {
		for _, r := range slices.Collect(a.works[id].tasks) {
			require.NoError(t, m.Abort(m.in, r.ID, "the end"))
		}
		if a.works[id] != nil {
			require.NoError(t, m.Release(m.in, id))
		}
	}
	for _, l := range m.Limits(m.in) {
		m.SetLimit(m.in, l.Group, 0)
	}
}

// finishAll lets time pass until the queue has forgotten everything.
func (m *model) finishAll(t *rapid.T) {
	m.advance(time.Hour)
	m.follow(t)
	require.Empty(t, m.timers.chunks)
	require.Zero(t, m.present)
	require.Zero(t, m.awaited)
	for _, a := range m.accounts {
		require.Empty(t, a.works)
		require.Empty(t, a.tasks)
		require.Empty(t, a.delegates)
		require.Empty(t, a.requirements)
		require.Empty(t, a.groups)
		require.Empty(t, a.tags)
	}
	require.Zero(t, m.finished.size)
	for account, n := range m.n {
		m.in = account
		for i := range n {
			for _, kind := range []string{"w", "t"} {
				id := m.of(fmt.Sprint(kind, i+1))
				require.LessOrEqual(t, m.ended[id], 1, id)
			}
			if id := fmt.Sprint("w", i+1); m.ended[m.of(id)] == 0 {
				_, err := m.Task(m.in, id)
				require.ErrorIs(t, err, ErrUnknownTask)
			}
		}
	}
}
