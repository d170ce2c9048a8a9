package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// operations returns the operations with their weights.
func (h *history) operations() (all []operation) {
	for _, o := range []struct {
		weight int
		operation
	}{
		{6, operation{"submit a stage", h.submitStage}},
		{2, operation{"submit a task", h.submitTask}},
		{1, operation{"submit again", h.submitAgain}},
		{10, operation{"acquire", h.take}},
		{11, operation{"answer", h.respond}},
		{1, operation{"abort", h.abortSome}},
		{4, operation{"append steps", h.appendSteps}},
		{1, operation{"finish a stage", h.finishStage}},
		{1, operation{"renew a lease", h.renewStage}},
		{1, operation{"abort a step", h.abortStep}},
		{2, operation{"register", h.register}},
		{2, operation{"heartbeat", h.beat}},
		{1, operation{"silence", h.silence}},
		{1, operation{"outage", h.outage}},
		{1, operation{"change a delegate", h.change}},
		{1, operation{"capacity", h.capacity}},
		{1, operation{"unregister", h.leave}},
		{1, operation{"drain", h.drain}},
		{1, operation{"pause", h.pause}},
		{1, operation{"limit", h.limit}},
		{1, operation{"foreign", h.foreign}},
		{1, operation{"reopen", h.reopen}},
		{2, operation{"pass time", h.passTime}},
	} {
		for range o.weight {
			all = append(all, o.operation)
		}
	}
	return all
}

type operation struct {
	name string
	do   func(*rapid.T)
}

// actions returns one action for rapid, which would not draw several evenly.
func (h *history) actions() map[string]func(*rapid.T) {
	all := h.operations()
	return map[string]func(*rapid.T){
		"": h.check,
		"operation": func(rt *rapid.T) {
			h.in = h.accounts[pick(rt, "account", []int{0, 0, 1})]
			o := pick(rt, "operation", all)
			rt.Log(o.name)
			o.do(rt)
			h.afterOperation()
		},
	}
}

// anyDelegate draws a delegate id, sometimes one that the account does not have.
func (h *history) anyDelegate(rt *rapid.T) string {
	a := h.in
	if len(a.delegates) > 0 && !oneIn(rt, "unknown delegate", 12) {
		return a.delegates[below(rt, "delegate", len(a.delegates))].id
	}
	unknown := append([]string{"nobody"}, a.removed...)
	for _, o := range h.accounts {
		if o != a {
			for _, d := range o.delegates {
				unknown = append(unknown, d.id)
			}
		}
	}
	return unknown[below(rt, "delegate", len(unknown))]
}

// delegate returns a delegate of the account, or nil.
func (h *history) delegate(id string) *delegate {
	i := slices.IndexFunc(h.in.delegates, func(d *delegate) bool { return d.id == id })
	if i < 0 {
		return nil
	}
	return h.in.delegates[i]
}

// anyTask draws a task, preferably in a given state, and mostly the delegate that
// has it.
func (h *history) anyTask(rt *rapid.T, preferred taskState) (delegate, id string) {
	var best, all []*record
	for _, w := range h.in.works {
		for _, r := range w.tasks {
			all = append(all, r)
			if r.state == preferred {
				best = append(best, r)
			}
		}
	}
	if len(best) > 0 && !oneIn(rt, "any", 10) {
		all = best
	}
	if len(all) == 0 {
		return h.anyDelegate(rt), "nothing"
	}
	r := all[below(rt, "task", len(all))]
	if r.d == nil || oneIn(rt, "unknown delegate", 10) {
		return h.anyDelegate(rt), r.id
	}
	return r.d.id, r.id
}

var (
	tags      = []string{"a", "A ", "b", "c"}
	selectors = [][]string{nil, nil, nil, nil, nil, {"a"}, {"a"}, {"B"}, {"a", "b"}, {"c"}, {"d1"}, {"D2"}}
	abilities = [][]string{
		nil, nil, nil, nil, {"CI_DOCKER_INITIALIZE_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_CLEANUP_TASK", "custom"},
		{"local_init", "local_execute", "local_cleanup", "custom"},
		{"CI_DOCKER_INITIALIZE_TASK", "local_init", "local_execute", "local_cleanup", "custom", "rare"}, {"custom"},
	}
)

func (h *history) anyTags(rt *rapid.T) []string {
	some := []string{}
	for range below(rt, "tags", 6) {
		some = append(some, pick(rt, "tag", tags))
	}
	return some
}

// statusFor returns a status, or 404 for a delegate that the account does not have.
func (h *history) statusFor(d *delegate, status int) int {
	if d == nil {
		return 404
	}
	return status
}

func (h *history) pause(rt *rapid.T) {
	verb := pick(rt, "verb", []string{"pause", "resume", "resume", "resume"})
	h.expect(rt, 204, "POST", "/api/"+verb, "")
	h.in.paused = verb == "pause"
	for _, d := range h.in.delegates {
		if h.in.paused {
			h.withdrawOffers(d)
		}
	}
	h.dispatch(h.in)
}

func (h *history) limit(rt *rapid.T) {
	group := pick(rt, "group", []string{"account", "pipeline:web", "label:env=prod", "queue:x"})
	most := pick(rt, "most", []int{0, 0, 0, 1, 2, 3})
	status := 204
	if group == "queue:x" {
		status = 400
	}
	h.expect(rt, status, "PUT", "/api/limits", fmt.Sprintf(`{"group":%q,"max":%d}`, group, most))
	if status == 204 {
		h.in.limits[group] = most
		h.dispatch(h.in)
	}
}

// take makes a delegate acquire a task.
func (h *history) take(rt *rapid.T) {
	delegate, id := h.anyTask(rt, pick(rt, "preferred", []taskState{offered, offered, offered, offered, acquired}))
	d := h.delegate(delegate)
	var r *record
	status := h.statusFor(d, 204)
	if d != nil {
		if r = h.acquire(d, id); r != nil {
			status = 200
		}
	}
	got := h.expect(rt, status, "PUT", "/api/agent/v2/delegates/"+delegate+"/tasks/"+id+"/acquire", "")
	if r == nil {
		return
	}
	var out struct{ ID, Type string }
	if got.into(rt, &out); out.ID != r.id || out.Type != r.kind {
		rt.Fatalf("acquired %s %s, and not %s %s", out.Type, out.ID, r.kind, r.id)
	}
}

// respond makes a delegate answer a task.
func (h *history) respond(rt *rapid.T) {
	delegate, id := h.anyTask(rt, acquired)
	with := pick(rt, "answer", answers)
	got := h.ask(rt, "POST", "/api/agent/v2/tasks/"+id+"/delegates/"+delegate, with.body)
	if want := h.answer(h.in, delegate, id, with); got.status != want {
		rt.Fatalf("%s answers %s: %d %s, and not %d\n%s", delegate, id, got.status, got.body.String(), want, h.story())
	}
}

func (h *history) abortSome(rt *rapid.T) {
	single, id := oneIn(rt, "single", 2), "nothing"
	if n := len(h.in.works); n > 0 {
		w := h.in.works[below(rt, "work", n)]
		id = w.id
		if !oneIn(rt, "other kind", 8) {
			single = w.stage == nil
		}
	}
	h.abort(rt, single, id)
}

func (h *history) abort(rt *rapid.T, single bool, id string) {
	kind, status := "stages", 404
	if single {
		kind = "tasks"
	}
	i := slices.IndexFunc(h.in.works, func(w *work) bool { return w.id == id && (w.stage == nil) == single })
	if i >= 0 {
		status = 200
	}
	h.expect(rt, status, "POST", "/api/"+kind+"/"+id+"/abort", "")
	switch {
	case i < 0:
		return
	case single:
		h.abortTask(h.in.works[i].first)
	default:
		h.stopStage(h.in.works[i], aborted, "aborted")
	}
}

// foreign makes calls with the token of another account.
func (h *history) foreign(rt *rapid.T) {
	a, path := *h.in, pick(rt, "path", []string{"/api/stages", "/api/stages/s1", "/api/delegates", "/api/events"})
	for _, o := range h.accounts {
		if o != h.in {
			a.token = o.token
		}
	}
	if r := h.call(h.some(rt), &a, "GET", path, ""); r.status != 401 {
		rt.Fatalf("another account can read %s: %d %s", path, r.status, r.body.String())
	}
}

func (h *history) passTime(rt *rapid.T) {
	h.jump(rt, time.Duration(1+below(rt, "seconds", 30))*time.Second)
}

// jump advances the time, unless the store has its own clock.
func (h *history) jump(rt *rapid.T, d time.Duration) {
	if h.clock == nil {
		rt.Skip("the store has its own clock")
	}
	h.beatAll(rt)
	h.clock.jump(d)
	h.advance(d)
}

// story describes the model for a test failure.
func (h *history) story() string {
	var b strings.Builder
	for _, a := range h.accounts {
		fmt.Fprintf(&b, "%s: paused %v, limits %v\n%s\n", a.name, a.paused, a.limits, strings.Join(h.expected(a), "\n"))
	}
	return b.String()
}
