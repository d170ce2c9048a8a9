package queuetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	wire "github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// RunPerpetual tests the perpetual tasks of the target (rule G1) in the manner of [Run]: two
// processes never believe to have a task, tokens only increase, a result counts exactly if
// its token is current and its process is the holder, and the events of these results
// reach a consumer, each once and in their order.
func RunPerpetual(t *testing.T, target Target) {
	t.Helper()
	target.Managers = max(target.Managers, 1)
	b := &budget{most: operations(t) / 4}
	for !b.spent() {
		rapid.Check(t, func(rt *rapid.T) { b.perpetual(t, rt, target) })
		b.failed = false
	}
	t.Logf("%d operations in %d histories, of %d managers", b.made, b.histories, target.Managers)
}

func (b *budget) perpetual(t *testing.T, rt *rapid.T, target Target) {
	if b.spent() {
		return
	}
	p := &perpetuals{
		history: start(t, rt, target), delegates: map[string]string{}, tasks: map[string]*perpetualTask{},
		assigned: map[string]assignment{}, events: map[string][]string{}, total: map[string]int{},
	}
	defer p.close()
	whole := false
	defer func() { b.failed = b.failed || !whole }()
	for _, name := range delegateNames {
		var out struct{ Resource struct{ DelegateID string } }
		body := map[string]any{"ng": true, "delegateName": name}
		if name != "d2" {
			body["tags"] = []string{"linux"}
		}
		p.expect(rt, 200, "POST", "/api/agent/delegates/register", asJSON(body)).into(rt, &out)
		p.delegates[name] = out.Resource.DelegateID
	}
	all := p.operations()
	actions := map[string]func(*rapid.T){
		"": p.oneBeliever,
		"operation": func(rt *rapid.T) {
			o := pick(rt, "operation", all)
			rt.Log(o.name)
			o.do(rt)
			p.operationCount++
		},
	}
	for range 1 + below(rt, "rounds", 6) {
		rt.Repeat(actions)
	}
	p.settle(rt)
	b.made += p.operationCount
	b.histories++
	whole = true
}

var (
	delegateNames  = []string{"d0", "d1", "d2"}
	perpetualTypes = []string{"a", "b"} // d2 has no handler for b
)

const (
	// mostSessions is the largest number of processes that a delegate may have at a time.
	mostSessions = 4
	mostTasks    = 6
)

// perpetuals drives the perpetual tasks of one account, and a model of them.
type perpetuals struct {
	*history
	delegates map[string]string // ids by name
	processes []*process
	total     map[string]int // processes of a delegate; they also number its sessions
	tasks     map[string]*perpetualTask
	assigned  map[string]assignment // the last ones that a process got
	events    map[string][]string   // of taken results, by type, in their order
	last      *manager.Manager      // that made the last change: others may learn of it a moment later
}

// process is a process of a delegate with the tasks that it believes to have.
type process struct {
	delegate, session, cursor string
	until                     time.Time // when it stops, a margin before the end of its lease
	has                       map[string]wire.Assignment
	run                       uint64
	late                      []wire.Result // that it has not reported
	dead                      bool
}

type perpetualTask struct {
	typ    string
	paused bool
	runs   uint64
	state  string
}

type assignment struct {
	token   uint64
	session string
}

func (p *perpetuals) operations() (all []operation) {
	for _, o := range []struct {
		weight int
		operation
	}{
		{3, operation{"put", p.put}},
		{1, operation{"delete", p.remove}},
		{1, operation{"pause", p.pause}},
		{1, operation{"kick", p.kick}},
		{3, operation{"begin", p.begin}},
		{6, operation{"renew", func(rt *rapid.T) { p.report(rt, p.process(rt), &wire.Report{}) }}},
		{1, operation{"die", func(rt *rapid.T) { p.process(rt).dead = true }}},
		{5, operation{"run", p.runTasks}},
		{5, operation{"results", p.results}},
		{3, operation{"release", p.release}},
		{1, operation{"leave", p.leave}},
		{2, operation{"drain", p.drain}},
		{2, operation{"restart", p.restart}},
		{2, operation{"pass time", p.passTime}},
	} {
		for range o.weight {
			all = append(all, o.operation)
		}
	}
	return all
}

// expect makes a change through a random manager, and reads at the one that made the last change.
func (p *perpetuals) expect(rt *rapid.T, status int, method, path, body string) *reply {
	if method != "GET" || p.last == nil {
		p.last = p.some(rt)
	}
	r := p.call(p.last, p.in, method, path, body)
	if r.status != status {
		rt.Fatalf("%s %s %s: %d %s, and not %d", method, path, body, r.status, r.body.String(), status)
	}
	return r
}

// restart starts a manager again, which then has the whole state.
func (p *perpetuals) restart(rt *rapid.T) {
	before := slices.Clone(p.managers)
	p.reopen(rt)
	for _, m := range p.managers {
		if !slices.Contains(before, m) {
			p.last = m
		}
	}
}

func (p *perpetuals) now() time.Time {
	if p.clock == nil {
		return time.Now()
	}
	return p.clock.Now()
}

func (p *perpetuals) believes(b *process) bool { return !b.dead && p.now().Before(b.until) }

// oneBeliever checks that no two processes believe to have a task.
func (p *perpetuals) oneBeliever(rt *rapid.T) {
	believed := map[string]string{}
	for _, b := range p.processes {
		if !p.believes(b) {
			continue
		}
		for id, t := range b.has {
			if t.Withdraw == wire.WithdrawNow {
				continue // it has cancelled the run
			}
			if other := believed[id]; other != "" {
				rt.Fatalf("%s and %s both believe to have %s", other, b.session, id)
			}
			believed[id] = b.session
		}
	}
}

// sessions returns the number of processes of a delegate whose leases have not ended.
func (p *perpetuals) sessions(name string) (n int) {
	for _, b := range p.processes {
		if b.delegate == name && p.hasLease(b) {
			n++
		}
	}
	return n
}

func (p *perpetuals) hasLease(b *process) bool {
	return p.now().Before(b.until.Add(p.config.PerpetualLease / 5))
}

// process draws a process that lives, and that may have a session.
func (p *perpetuals) process(rt *rapid.T) *process {
	live := slices.DeleteFunc(slices.Clone(p.processes), func(b *process) bool {
		return b.dead || !p.hasLease(b) && p.sessions(b.delegate) >= mostSessions
	})
	if len(live) == 0 {
		rt.Skip("none")
	}
	return pick(rt, "process", live)
}

// task draws a task.
func (p *perpetuals) task(rt *rapid.T) string {
	if len(p.tasks) == 0 {
		rt.Skip("none")
	}
	return pick(rt, "task", slices.Sorted(maps.Keys(p.tasks)))
}

func (p *perpetuals) put(rt *rapid.T) {
	id, typ, paused := fmt.Sprint("t", below(rt, "id", mostTasks)), pick(rt, "type", perpetualTypes), oneIn(rt, "paused", 4)
	body := map[string]any{"type": typ, "interval_ms": 1000, "paused": paused, "config": below(rt, "config", 3)}
	if oneIn(rt, "selects", 2) {
		body["selectors"] = []string{"Linux"}
	}
	p.expect(rt, 200, "PUT", "/api/perpetual/"+id, asJSON(body))
	if old := p.tasks[id]; old == nil || old.typ != typ {
		p.tasks[id] = &perpetualTask{typ: typ}
	}
	p.tasks[id].paused = paused
}

func (p *perpetuals) remove(rt *rapid.T) {
	id := p.task(rt)
	p.expect(rt, 204, "DELETE", "/api/perpetual/"+id, "")
	delete(p.tasks, id)
	p.expect(rt, 404, "GET", "/api/perpetual/"+id, "")
}

func (p *perpetuals) pause(rt *rapid.T) {
	id := p.task(rt)
	t := p.tasks[id]
	t.paused = !t.paused
	p.expect(rt, 200, "POST", "/api/perpetual/"+id+map[bool]string{true: "/pause", false: "/resume"}[t.paused], "")
}

func (p *perpetuals) kick(rt *rapid.T) {
	id := p.task(rt)
	p.expect(rt, map[bool]int{true: 409, false: 200}[p.tasks[id].paused], "POST", "/api/perpetual/"+id+"/run", "")
}

func (p *perpetuals) begin(rt *rapid.T) { p.beginOf(rt, pick(rt, "delegate", delegateNames)) }

func (p *perpetuals) beginOf(rt *rapid.T, name string) {
	if p.sessions(name) >= mostSessions {
		rt.Skip("there are enough processes")
	}
	p.total[name]++
	b := &process{delegate: name, session: fmt.Sprint(name, "-", p.total[name]), has: map[string]wire.Assignment{}}
	p.processes = append(p.processes, b)
	p.report(rt, b, &wire.Report{})
}

// report makes a call of a process as the poller does, and the calls that it leads to.
func (p *perpetuals) report(rt *rapid.T, b *process, r *wire.Report) (refused []wire.Refusal) {
	r.Session, r.Types = b.session, perpetualTypes
	if b.delegate == "d2" {
		r.Types = perpetualTypes[:1]
	}
	for more := true; more; {
		if !p.believes(b) {
			clear(b.has)
			b.cursor = ""
		}
		r.Since = b.cursor
		sent := p.now()
		var a wire.Answer
		p.expect(rt, 200, "POST", wire.PathPrefix+p.delegates[b.delegate]+wire.PathSuffix, asJSON(r)).into(rt, &a)
		lease := time.Duration(a.LeaseMS) * time.Millisecond
		if lease != p.config.PerpetualLease {
			rt.Fatalf("the lease is %s", lease)
		}
		b.until = sent.Add(lease - lease/5) // the margin is a fifth
		refused = append(refused, a.Refused...)
		if a.HeldGiven {
			maps.DeleteFunc(b.has, func(_ string, has wire.Assignment) bool { return !slices.Contains(a.Held, has.Claim) })
		}
		for _, t := range a.Assigned {
			p.take(rt, b, t)
		}
		b.cursor, more = a.Cursor, a.More
		r = &wire.Report{Session: r.Session, Types: r.Types, Leaving: r.Leaving}
	}
	return refused
}

// take notes a task in an answer.
func (p *perpetuals) take(rt *rapid.T, b *process, t wire.Assignment) {
	if old, ok := b.has[t.ID]; ok && old.Token == t.Token {
		b.has[t.ID] = t
		return
	}
	now := assignment{t.Token, b.session}
	if last := p.assigned[t.ID]; last != now && t.Token <= last.token { // it may get the same one again
		rt.Fatalf("%s gets %s with the token %d after %+v", b.session, t.ID, t.Token, last)
	}
	p.assigned[t.ID] = now
	b.has[t.ID] = t
}

// runTasks runs each task of a process once. The results are reported later.
func (p *perpetuals) runTasks(rt *rapid.T) {
	b := p.process(rt)
	for _, id := range slices.Sorted(maps.Keys(b.has)) {
		b.run++
		value := json.RawMessage(asJSON(fmt.Sprint(b.session, " ", b.run)))
		b.late = append(b.late, wire.Result{Claim: b.has[id].Claim, Run: b.run, StartedAgoMS: 1, State: value, Events: []json.RawMessage{value}})
	}
}

// results reports results twice, perhaps long after the end of the lease.
func (p *perpetuals) results(rt *rapid.T) {
	b := p.process(rt)
	late, counts := b.late, map[uint64]bool{}
	b.late = nil
	for _, r := range late {
		t := p.tasks[r.ID]
		if t == nil {
			continue
		}
		v := p.view(rt, r.ID)
		if v.DelegateID == "" || v.Token != r.Token || p.assigned[r.ID] != (assignment{r.Token, b.session}) {
			continue
		}
		counts[r.Run] = true
		t.runs++
		t.state = string(r.State)
		p.events[t.typ] = append(p.events[t.typ], t.state)
	}
	for range 2 {
		refused := p.report(rt, b, &wire.Report{Results: late})
		for _, r := range late {
			if not := slices.ContainsFunc(refused, func(f wire.Refusal) bool { return f.Run == r.Run }); not == counts[r.Run] {
				rt.Fatalf("the result %+v of %s: counts %t, refused %+v", r, b.session, counts[r.Run], refused)
			}
		}
	}
	for _, r := range late {
		p.compareTask(rt, r.ID)
	}
}

func (p *perpetuals) view(rt *rapid.T, id string) (v api.PerpetualTask) {
	p.expect(rt, 200, "GET", "/api/perpetual/"+id, "").into(rt, &v)
	return v
}

// compareTask compares a task of the managers with the model.
func (p *perpetuals) compareTask(rt *rapid.T, id string) {
	t := p.tasks[id]
	if t == nil {
		return
	}
	v := p.view(rt, id)
	waits := v.DelegateID == "" && !t.paused
	if v.Type != t.typ || v.Paused != t.paused || v.Runs != t.runs || string(v.State) != t.state || waits && v.Waiting == "" {
		rt.Fatalf("%s is %+v with the state %s, and not %+v", id, v, v.State, t)
	}
}

// release hands back the tasks that the managers ask for.
func (p *perpetuals) release(rt *rapid.T) {
	b := p.process(rt)
	var back []wire.Claim
	for _, id := range slices.Sorted(maps.Keys(b.has)) {
		if b.has[id].Withdraw != "" {
			back = append(back, b.has[id].Claim)
			delete(b.has, id)
		}
	}
	p.report(rt, b, &wire.Report{Released: back})
}

// leave hands back all tasks, and ends the process.
func (p *perpetuals) leave(rt *rapid.T) {
	b := p.process(rt)
	var back []wire.Claim
	for _, id := range slices.Sorted(maps.Keys(b.has)) {
		back = append(back, b.has[id].Claim)
	}
	clear(b.has)
	p.report(rt, b, &wire.Report{Leaving: true, Released: back})
	b.dead = true
}

func (p *perpetuals) drain(rt *rapid.T) {
	name, verb := pick(rt, "delegate", delegateNames), pick(rt, "verb", []string{"drain", "resume"})
	p.expect(rt, 204, "POST", "/api/delegates/"+p.delegates[name]+"/"+verb, "")
}

// passTime lets less time pass than after which a delegate without heartbeats is lost.
func (p *perpetuals) passTime(rt *rapid.T) {
	if p.clock == nil {
		rt.Skip("the store has its own clock")
	}
	p.elapse(rt, time.Duration(1+below(rt, "seconds", 30))*time.Second)
}

func (p *perpetuals) elapse(rt *rapid.T, d time.Duration) {
	p.clock.jump(d)
	for _, name := range delegateNames {
		p.expect(rt, 200, "POST", "/api/agent/delegates/heartbeat-with-polling", asJSON(map[string]any{"delegateId": p.delegates[name]}))
	}
}

// settle starts all delegates again: each task that is not paused has a holder in the end, and
// all events reach a consumer.
func (p *perpetuals) settle(rt *rapid.T) {
	for _, name := range delegateNames {
		p.expect(rt, 204, "POST", "/api/delegates/"+p.delegates[name]+"/resume", "")
	}
	if p.clock != nil { // otherwise the leases of processes that died do not end
		for range 4 {
			p.elapse(rt, p.config.PerpetualLease)
		}
		p.processes = nil
		for _, name := range delegateNames {
			p.beginOf(rt, name)
		}
		for id, t := range p.tasks {
			if v := p.view(rt, id); (v.DelegateID == "") != t.paused {
				rt.Fatalf("%s has no holder, or is paused and has one: %+v", id, v)
			}
		}
		p.oneBeliever(rt)
	}
	for id := range p.tasks {
		p.compareTask(rt, id)
	}
	for _, typ := range perpetualTypes {
		if got := p.consume(typ); !slices.Equal(got, p.events[typ]) {
			rt.Fatalf("the events of type %s are %q, and not %q", typ, got, p.events[typ])
		}
	}
}

// consume takes the events of a type until all of them, or another one, have come.
func (p *perpetuals) consume(typ string) (got []string) {
	if len(p.events[typ]) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	last := uint64(0)
	_ = p.managers[0].ConsumePerpetual(ctx, typ, func(_ context.Context, events []manager.PerpetualEvent) error {
		for _, e := range events {
			if e.ID > last {
				last = e.ID
				var text string
				_ = json.Unmarshal(e.Data, &text)
				got = append(got, asJSON(text))
			}
		}
		if len(got) >= len(p.events[typ]) {
			cancel()
		}
		return nil
	})
	return got
}
