package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// actions are the operations, some of them more than once, for they are to happen
// more often.
func (h *history) actions() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){
		"register": h.register, "heartbeat": h.beat, "change a delegate": h.change, "capacity": h.capacity,
		"unregister": h.leave, "drain": h.drain, "pause": h.pause, "limit": h.limit,
		"submit a stage": h.submitStage, "submit a stage ": h.submitStage, "submit a stage  ": h.submitStage,
		"submit a task": h.submitTask, "submit again": h.submitAgain,
		"acquire": h.take, "acquire ": h.take, "acquire  ": h.take, "acquire   ": h.take,
		"answer": h.respond, "answer ": h.respond, "answer  ": h.respond, "answer   ": h.respond,
		"abort": h.abortSome, "foreign": h.foreign, "reopen": h.reopen, "pass": h.passTime,
	}
	for name, act := range all {
		all[name] = func(rt *rapid.T) {
			h.in = h.accounts[rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "account")]
			act(rt)
			h.did()
		}
	}
	all[""] = h.check
	return all
}

// rarely is true once in n times.
func rarely(rt *rapid.T, what string, n int) bool { return rapid.IntRange(1, n).Draw(rt, what) == n }

// anyDelegate is the id of one that the account has, or has not.
func (h *history) anyDelegate(rt *rapid.T) string {
	a := h.in
	if len(a.delegates) > 0 && !rarely(rt, "stranger", 12) {
		return a.delegates[rapid.IntRange(0, len(a.delegates)-1).Draw(rt, "delegate")].id
	}
	strangers := append([]string{"nobody"}, a.gone...)
	for _, o := range h.accounts {
		if o != a {
			for _, d := range o.delegates {
				strangers = append(strangers, d.id)
			}
		}
	}
	return strangers[rapid.IntRange(0, len(strangers)-1).Draw(rt, "delegate")]
}

// known finds a delegate of the account.
func (h *history) known(id string) *delegate {
	i := slices.IndexFunc(h.in.delegates, func(d *delegate) bool { return d.id == id })
	if i < 0 {
		return nil
	}
	return h.in.delegates[i]
}

// anyTask is a task that a delegate has been given and a delegate that may be that
// one.
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
	if len(best) > 0 && !rarely(rt, "any", 10) {
		all = best
	}
	if len(all) == 0 {
		return h.anyDelegate(rt), "nothing"
	}
	r := all[rapid.IntRange(0, len(all)-1).Draw(rt, "task")]
	if r.d == nil || rarely(rt, "stranger", 10) {
		return h.anyDelegate(rt), r.id
	}
	return r.d.id, r.id
}

var (
	tags      = []string{"a", "A ", "b", "c"}
	selectors = []string{"a", "a", "b", "B", "c", "d1", "D2"}
	abilities = [][]string{
		nil, {"CI_DOCKER_INITIALIZE_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_CLEANUP_TASK", "custom"},
		{"local_init", "local_execute", "local_cleanup"},
		{"CI_DOCKER_INITIALIZE_TASK", "local_init", "local_execute", "local_cleanup", "custom", "rare"}, {"custom"},
	}
)

func (h *history) anyTags(rt *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom(tags), 0, 3).Draw(rt, "tags")
}

func (h *history) register(rt *rapid.T) {
	a := h.in
	body := map[string]any{"ng": true}
	id := ""
	if len(a.delegates) >= 4 || rarely(rt, "again", 4) {
		id = h.anyDelegate(rt)
		body["delegateId"] = id
	}
	d := h.known(id)
	if d == nil && len(a.delegates) >= 5 {
		rt.Skip("enough")
	}
	says := rarely(rt, "draining", 10)
	name := "d" + fmt.Sprint(rapid.IntRange(1, 3).Draw(rt, "name"))
	tags, types := h.anyTags(rt), rapid.SampledFrom(abilities).Draw(rt, "types")
	body["delegateName"], body["tags"], body["supportedTaskTypes"], body["draining"] = name, tags, types, says
	var out struct{ Resource struct{ DelegateID string } }
	h.expect(rt, 200, "POST", "/api/agent/delegates/register", asJSON(body)).into(rt, &out)
	if d == nil {
		if id := out.Resource.DelegateID; id == "" || slices.Contains(a.gone, id) || h.known(id) != nil {
			rt.Fatalf("a new delegate has the id %q", id)
		}
		d = &delegate{
			acc: a, id: out.Resource.DelegateID, order: h.number(), idle: h.now, stops: map[string]*record{},
		}
		a.delegates = append(a.delegates, d)
	}
	if d.id != out.Resource.DelegateID {
		rt.Fatalf("%q has registered again as %q", d.id, out.Resource.DelegateID)
	}
	d.name, d.tags, d.types, d.says = name, tags, types, says
	h.alive(d)
	if most := rapid.IntRange(0, 3).Draw(rt, "most"); most > 0 {
		h.did()
		h.setCapacity(rt, d.id, most)
	}
}

// found is a status, or 404 for a delegate that the account does not have.
func (h *history) found(d *delegate, status int) int {
	if d == nil {
		return 404
	}
	return status
}

func (h *history) heartbeat(rt *rapid.T, body map[string]any) *delegate {
	id := h.anyDelegate(rt)
	d, says := h.known(id), rarely(rt, "draining", 6)
	body["delegateId"], body["draining"] = id, says
	h.expect(rt, h.found(d, 200), "POST", "/api/agent/delegates/heartbeat-with-polling", asJSON(body))
	if d != nil {
		d.says = says
	}
	return d
}

func (h *history) beat(rt *rapid.T) {
	if d := h.heartbeat(rt, map[string]any{}); d != nil {
		h.alive(d)
	}
}

func (h *history) change(rt *rapid.T) {
	tags, types := h.anyTags(rt), rapid.SampledFrom(abilities).Draw(rt, "types")
	name := rapid.SampledFrom([]string{"", "d1", "d3"}).Draw(rt, "name")
	d := h.heartbeat(rt, map[string]any{"tags": tags, "supportedTaskTypes": types, "delegateName": name})
	if d == nil {
		return
	}
	if name != "" {
		d.name = name
	}
	if types != nil {
		d.types = types
	}
	d.tags = tags
	h.alive(d)
}

func (h *history) capacity(rt *rapid.T) {
	h.setCapacity(rt, h.anyDelegate(rt), rapid.IntRange(0, 3).Draw(rt, "most"))
}

func (h *history) setCapacity(rt *rapid.T, id string, most int) {
	d := h.known(id)
	h.expect(rt, h.found(d, 204), "POST", "/api/agent/delegates/register-delegate-capacity/"+id,
		fmt.Sprintf(`{"maximumNumberOfBuilds":%d}`, most))
	if d != nil {
		h.resize(d, most)
	}
}

func (h *history) leave(rt *rapid.T) {
	if !rarely(rt, "really", 3) {
		rt.Skip("they are to have work")
	}
	h.unregister(rt, h.anyDelegate(rt))
}

func (h *history) unregister(rt *rapid.T, id string) {
	d := h.known(id)
	h.expect(rt, h.found(d, 204), "POST", "/api/agent/delegates/unregister", asJSON(map[string]string{"delegateId": id}))
	if d != nil {
		h.remove(d)
	}
}

func (h *history) drain(rt *rapid.T) {
	id, verb := h.anyDelegate(rt), rapid.SampledFrom([]string{"drain", "resume", "resume"}).Draw(rt, "verb")
	d := h.known(id)
	h.expect(rt, h.found(d, 204), "POST", "/api/delegates/"+id+"/"+verb, "")
	if d != nil {
		d.told = verb == "drain"
		h.refill(d)
	}
}

func (h *history) pause(rt *rapid.T) {
	verb := rapid.SampledFrom([]string{"pause", "resume", "resume"}).Draw(rt, "verb")
	h.expect(rt, 204, "POST", "/api/"+verb, "")
	h.in.paused = verb == "pause"
	for _, d := range h.in.delegates {
		if h.in.paused {
			h.withdraw(d)
		}
	}
	h.settle(h.in)
}

func (h *history) limit(rt *rapid.T) {
	group := rapid.SampledFrom([]string{"account", "pipeline:web", "label:env=prod", "queue:x"}).Draw(rt, "group")
	most := rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(rt, "most")
	status := 204
	if group == "queue:x" {
		status = 400
	}
	h.expect(rt, status, "PUT", "/api/limits", fmt.Sprintf(`{"group":%q,"max":%d}`, group, most))
	if status == 204 {
		h.in.limits[group] = most
		h.settle(h.in)
	}
}

// take has a delegate acquire something.
func (h *history) take(rt *rapid.T) {
	delegate, id := h.anyTask(rt, offered)
	d := h.known(delegate)
	var r *record
	status := h.found(d, 204)
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

// respond has a delegate answer something.
func (h *history) respond(rt *rapid.T) {
	delegate, id := h.anyTask(rt, acquired)
	with := rapid.SampledFrom(answers).Draw(rt, "answer")
	got := h.ask(rt, "POST", "/api/agent/v2/tasks/"+id+"/delegates/"+delegate, with.body)
	if want := h.answer(h.in, delegate, id, with); got.status != want {
		rt.Fatalf("%s answers %s: %d %s, and not %d\n%s", delegate, id, got.status, got.body.String(), want, h.story())
	}
}

func (h *history) abortSome(rt *rapid.T) {
	single, id := rapid.Bool().Draw(rt, "single"), "nothing"
	if n := len(h.in.works); n > 0 {
		w := h.in.works[rapid.IntRange(0, n-1).Draw(rt, "work")]
		id = w.id
		if !rarely(rt, "other kind", 8) {
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
		h.stop(h.in.works[i].first)
	default:
		h.halt(h.in.works[i], aborted)
	}
}

// foreign asks with the token of another account.
func (h *history) foreign(rt *rapid.T) {
	a, path := *h.in, rapid.SampledFrom([]string{"/api/stages", "/api/stages/s1", "/api/delegates", "/api/events"}).Draw(rt, "path")
	for _, o := range h.accounts {
		if o != h.in {
			a.token = o.token
		}
	}
	if r := h.call(h.some(rt), &a, "GET", path, ""); r.status != 401 {
		rt.Fatalf("another account may read %s: %d %s", path, r.status, r.body.String())
	}
}

func (h *history) passTime(rt *rapid.T) {
	if h.clock == nil {
		rt.Skip("the time is the store's")
	}
	d := time.Duration(rapid.IntRange(1, 30).Draw(rt, "seconds")) * time.Second
	h.clock.jump(d)
	h.pass(d)
}

// story is what the model knows, for people.
func (h *history) story() string {
	var b strings.Builder
	for _, a := range h.accounts {
		fmt.Fprintf(&b, "%s: paused %v, limits %v\n%s\n", a.name, a.paused, a.limits, strings.Join(h.expected(a), "\n"))
	}
	return b.String()
}
