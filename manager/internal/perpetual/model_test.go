package perpetual

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	wire "github.com/delegate-io/dlite/internal/perpetual"
)

const (
	lease  = 30 * time.Second
	margin = lease / 5 // a delegate stops this long before the end of the lease
)

// believer is a delegate's process as the model has it: the tasks that it believes to have.
type believer struct {
	delegate, session string
	cursor            string
	until             time.Time // of its lease, without the margin
	has               map[string]wire.Assignment
	run               uint64
	late              []wire.Result // results of runs that it has not reported
	dead              bool
}

func (b *believer) believes(now time.Time) bool { return !b.dead && now.Before(b.until) }

type holding struct {
	token   uint64
	session string
}

// history is a set with its model.
type history struct {
	set      *Set
	now      time.Time
	facts    map[string]Facts
	all      []*believer
	sessions int
	want     map[string]bool    // paused, by the id of a task that was not deleted
	state    map[string]int     // the number of results that were taken
	tokens   map[string]holding // the last ones that a process got
	events   int                // that were published and not taken
}

func (h *history) tick(d time.Duration) {
	h.now = h.now.Add(d)
	for {
		at, ok := h.set.NextDeadline()
		if !ok || at.After(h.now) {
			break
		}
		h.set.Reach(at)
		h.set.Tick()
	}
	h.set.Reach(h.now)
}

// report makes a call of a process, as the poller does.
func (h *history) report(rt *rapid.T, b *believer, r wire.Report) []wire.Refusal {
	r.Session, r.Types = b.session, []string{"a", "b"}
	if b.delegate == "d2" {
		r.Types = []string{"a"}
	}
	h.set.Reach(h.now)
	refused, err := h.set.Report("acc", b.delegate, &r)
	require.NoError(rt, err)
	if !b.believes(h.now) {
		clear(b.has)
		b.cursor = ""
	}
	b.until = h.now.Add(lease - margin)
	for more := true; more; {
		a, _, ok := h.set.Changes("acc", b.session, b.cursor, h.now)
		require.True(rt, ok)
		if a.HeldGiven {
			for id, old := range b.has {
				if !slices.Contains(a.Held, old.Claim) {
					delete(b.has, id)
				}
			}
		}
		for _, t := range a.Assigned {
			if old, ok := b.has[t.ID]; !ok || old.Token != t.Token {
				if last := h.tokens[t.ID]; last != (holding{t.Token, b.session}) { // else it has it again in time
					require.Greater(rt, t.Token, last.token, "tokens increase")
				}
				h.tokens[t.ID] = holding{t.Token, b.session}
				b.has[t.ID] = t
			} else {
				old.Withdraw = t.Withdraw
				b.has[t.ID] = old
			}
		}
		b.cursor, more = a.Cursor, a.More
	}
	return refused
}

func (h *history) pick(rt *rapid.T, live bool) *believer {
	list := slices.DeleteFunc(slices.Clone(h.all), func(b *believer) bool { return b.dead == live })
	if len(list) == 0 {
		rt.Skip("none")
	}
	b := rapid.SampledFrom(list).Draw(rt, "process")
	if a := h.set.find("acc"); a.sessions[b.session] == nil && len(a.sessionsOf(b.delegate)) >= maxSessions {
		rt.Skip("too many")
	}
	return b
}

func (h *history) task(rt *rapid.T) string {
	if len(h.want) == 0 {
		rt.Skip("no task")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(h.want))).Draw(rt, "task")
}

// Rule G1: operations in any order, deaths, pauses and time. No two processes believe to
// have a task; results are taken exactly with the present token from the present holder;
// none is taken twice and none is lost; the saved state is the whole state.
func TestAnyHistoryHasOneHolder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{
			now: time.Unix(1_700_000_000, 0), want: map[string]bool{}, state: map[string]int{}, tokens: map[string]holding{},
			facts: map[string]Facts{
				"d0": {Name: "d0", Tags: []string{"d0", "linux"}, Takes: true}, "d1": {Name: "d1", Tags: []string{"d1", "linux"}, Takes: true},
				"d2": {Name: "d2", Tags: []string{"d2"}, Takes: true},
			},
		}
		facts := func(_, id string) (Facts, bool) { f, ok := h.facts[id]; return f, ok }
		h.set = New(facts)
		h.set.Reach(h.now)
		ids := []string{"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(rt, "id")
				p := Spec{
					ID: id, Type: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "type"), IntervalMS: 1000,
					Config: json.RawMessage(strconv.Itoa(rapid.IntRange(0, 2).Draw(rt, "config"))), Paused: rapid.Bool().Draw(rt, "paused"),
				}
				if rapid.Bool().Draw(rt, "selects") {
					p.Selectors = []string{"linux"}
				}
				old, _ := h.set.find("acc").task(id)
				if old == nil || old.Type != p.Type {
					h.state[id] = 0
				}
				require.NoError(rt, h.set.Put("acc", p))
				h.want[id] = p.Paused
			},
			"delete": func(rt *rapid.T) {
				id := h.task(rt)
				require.NoError(rt, h.set.Delete("acc", id))
				delete(h.want, id)
				require.ErrorIs(rt, h.set.Delete("acc", id), ErrUnknown)
			},
			"pause": func(rt *rapid.T) {
				id := h.task(rt)
				h.want[id] = !h.want[id]
				require.NoError(rt, h.set.Pause("acc", id, h.want[id], "note"))
			},
			"kick": func(rt *rapid.T) {
				id := h.task(rt)
				if err := h.set.Kick("acc", id); h.want[id] {
					require.ErrorIs(rt, err, ErrPaused)
				} else {
					require.NoError(rt, err)
				}
			},
			"begin": func(rt *rapid.T) {
				d := rapid.SampledFrom([]string{"d0", "d1", "d2"}).Draw(rt, "delegate")
				if len(h.set.find("acc").sessionsOf(d)) >= maxSessions {
					rt.Skip("too many")
				}
				h.sessions++
				b := &believer{delegate: d, session: fmt.Sprint("s", h.sessions), has: map[string]wire.Assignment{}}
				h.all = append(h.all, b)
				h.report(rt, b, wire.Report{})
			},
			"renew": func(rt *rapid.T) { h.report(rt, h.pick(rt, true), wire.Report{}) },
			"die":   func(rt *rapid.T) { h.pick(rt, true).dead = true },
			"runs": func(rt *rapid.T) { // of a process that believes, reported now or later
				b := h.pick(rt, true)
				for _, id := range slices.Sorted(maps.Keys(b.has)) {
					b.run++
					b.late = append(b.late, wire.Result{
						Claim: b.has[id].Claim, Run: b.run, StartedAgoMS: 1, State: json.RawMessage(strconv.FormatUint(b.run, 10)),
						Events: []json.RawMessage{json.RawMessage("1")},
					})
				}
			},
			"results": func(rt *rapid.T) { // perhaps long after the end of the lease, and twice
				b := h.pick(rt, true)
				a := h.set.find("acc")
				expected := map[uint64]bool{}
				session := a.sessions[b.session]
				if session != nil && session.Due <= millis(h.now.UnixMilli()) {
					session = nil
				}
				for _, r := range b.late {
					task := a.tasks[r.ID]
					if task != nil && !task.Deleted && task.Token == r.Token && session != nil && task.holder == session {
						expected[r.Run] = true
						h.state[r.ID]++
						h.events++
					}
				}
				late := b.late
				b.late = nil
				for range 2 {
					refused := h.report(rt, b, wire.Report{Results: late})
					for _, r := range late {
						not := slices.ContainsFunc(refused, func(f wire.Refusal) bool { return f.Run == r.Run && f.Error != "" })
						if expected[r.Run] && !not {
							continue
						}
						require.False(rt, expected[r.Run] && not, "refused: %+v", refused)
						require.True(rt, not, "taken without the token: %+v", r)
					}
				}
			},
			"release": func(rt *rapid.T) { // what it was asked for
				b := h.pick(rt, true)
				var back []wire.Claim
				for id, t := range b.has {
					if t.Withdraw != "" {
						back = append(back, t.Claim)
						delete(b.has, id)
					}
				}
				h.report(rt, b, wire.Report{Released: back})
			},
			"leave": func(rt *rapid.T) { // drains and ends
				b := h.pick(rt, true)
				var back []wire.Claim
				for _, t := range b.has {
					back = append(back, t.Claim)
				}
				clear(b.has)
				h.report(rt, b, wire.Report{Leaving: true, Released: back})
				b.dead = true // it may have got a task a moment ago
			},
			"drain": func(rt *rapid.T) {
				id := rapid.SampledFrom([]string{"d0", "d1", "d2"}).Draw(rt, "delegate")
				f := h.facts[id]
				f.Takes = !f.Takes
				h.facts[id] = f
				h.set.Observe("acc", id)
			},
			"consume": func(rt *rapid.T) {
				for _, typ := range []string{"a", "b"} {
					list, _, _ := h.set.Events(typ, "me")
					if len(list) == 0 {
						require.False(rt, h.set.Claim(typ, "me"))
						continue
					}
					require.True(rt, h.set.Claim(typ, "me"))
					require.False(rt, h.set.Claim(typ, "other"))
					h.set.Done(typ, "other", list[len(list)-1].ID) // has no effect
					n := rapid.IntRange(1, len(list)).Draw(rt, "events")
					h.set.Done(typ, "me", list[n-1].ID)
					h.events -= n
				}
			},
			"time": func(rt *rapid.T) {
				h.tick(time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second)
			},
			"restart": func(rt *rapid.T) { // and a replica
				fresh := New(facts)
				fresh.Configure(h.set.cfg)
				saved, tasks := h.saved(rt)
				require.NoError(rt, fresh.Load(saved, tasks))
				h.set = fresh
			},
			"": func(rt *rapid.T) { h.check(rt) },
		})
		h.finish(rt)
	})
}

// saved returns the state after it was encoded.
func (h *history) saved(rt *rapid.T) (saved Saved, tasks []SavedTask) {
	set, list := h.set.Save()
	text, err := json.Marshal(set)
	require.NoError(rt, err)
	require.NoError(rt, json.Unmarshal(text, &saved))
	text, err = json.Marshal(list)
	require.NoError(rt, err)
	require.NoError(rt, json.Unmarshal(text, &tasks))
	return saved, tasks
}

// check compares the set with the model.
func (h *history) check(rt *rapid.T) {
	believed := map[string]string{}
	for _, b := range h.all {
		if !b.believes(h.now) {
			continue
		}
		for id, t := range b.has {
			if t.Withdraw == wire.WithdrawNow {
				continue // it has cancelled the run
			}
			require.Empty(rt, believed[id], "%s believes to have %s too", b.session, id)
			believed[id] = b.session
		}
	}
	a := h.set.find("acc")
	bytes, events := 0, 0
	for id, paused := range h.want {
		t := a.tasks[id]
		require.NotNil(rt, t)
		require.Equal(rt, paused, t.Paused)
		require.Equal(rt, t.holder == nil && !paused, a.free[id] != nil, "a task without a holder waits for one")
		require.Equal(rt, uint64(h.state[id]), t.Runs)
	}
	for _, t := range a.tasks {
		bytes += t.size()
		if t.holder != nil {
			require.Same(rt, t, t.holder.tasks[t.ID])
			require.Equal(rt, t.Withdraw == wire.WithdrawNow, a.asked[t.ID] != nil)
		}
	}
	for _, o := range h.set.outboxes {
		for _, e := range o.Events {
			bytes += len(e.Data) + eventSize
			events++
		}
	}
	require.Equal(rt, bytes, a.bytes)
	require.Equal(rt, events, a.events)
	require.Equal(rt, h.events, events)
}

// finish lets everybody return: each task that is not paused has a holder in the end.
func (h *history) finish(rt *rapid.T) {
	h.tick(3 * lease)
	for id, f := range h.facts {
		f.Takes = true
		h.facts[id] = f
		h.set.Observe("acc", id)
	}
	h.all = nil
	for _, d := range []string{"d0", "d1", "d2"} {
		h.sessions++
		b := &believer{delegate: d, session: fmt.Sprint("last", h.sessions), has: map[string]wire.Assignment{}}
		h.all = append(h.all, b)
		h.report(rt, b, wire.Report{})
	}
	for id, paused := range h.want {
		v, err := h.set.View("acc", id)
		require.NoError(rt, err)
		assert.Equal(rt, paused, v.HolderDelegate == "", "%+v", v)
	}
	h.check(rt)
}
