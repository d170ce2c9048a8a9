package queuetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// groups are those of delegates.
var groups = []string{"", "p", "p", "q"}

func (h *history) register(rt *rapid.T) {
	a := h.in
	body := map[string]any{"ng": true}
	id := ""
	if len(a.delegates) >= 4 || oneIn(rt, "again", 4) {
		id = h.anyDelegate(rt)
		body["delegateId"] = id
	}
	d := h.delegate(id)
	if d == nil && len(a.delegates) >= 5 {
		rt.Skip("there are enough delegates")
	}
	says := oneIn(rt, "draining", 15)
	name := "d" + fmt.Sprint(1+below(rt, "name", 3))
	tags, types := h.anyTags(rt), pick(rt, "types", abilities)
	body["delegateName"], body["tags"], body["supportedTaskTypes"], body["draining"] = name, tags, types, says
	group := pick(rt, "group", groups)
	body["group"] = group
	var out struct{ Resource struct{ DelegateID string } }
	h.expect(rt, 200, "POST", "/api/agent/delegates/register", asJSON(body)).into(rt, &out)
	if d == nil {
		if id := out.Resource.DelegateID; id == "" || slices.Contains(a.removed, id) || h.delegate(id) != nil {
			rt.Fatalf("a new delegate has the id %q", id)
		}
		d = &delegate{
			acc: a, id: out.Resource.DelegateID, order: h.number(), idle: h.now, stops: map[string]*record{},
			unaware: oneIn(rt, "unaware", 3),
		}
		a.delegates = append(a.delegates, d)
	}
	if d.id != out.Resource.DelegateID {
		rt.Fatalf("%q has registered again as %q", d.id, out.Resource.DelegateID)
	}
	d.name, d.tags, d.types, d.drainsItself, d.group = name, tags, types, says, group
	d.silent = false
	h.recordSign(d)
	if most := below(rt, "most", 4); most > 0 {
		h.afterOperation()
		h.setCapacity(rt, d.id, most)
	}
}

func (h *history) heartbeat(rt *rapid.T, body map[string]any) *delegate {
	id := h.anyDelegate(rt)
	if oneIn(rt, "lost", 2) {
		for _, d := range h.in.delegates {
			if d.lost {
				id = d.id
			}
		}
	}
	d, says := h.delegate(id), oneIn(rt, "draining", 8)
	body["delegateId"], body["draining"] = id, says
	h.expect(rt, h.statusFor(d, 200), "POST", "/api/agent/delegates/heartbeat-with-polling", asJSON(body))
	if d != nil {
		d.drainsItself = says
		d.silent = oneIn(rt, "only this once", 2)
	}
	return d
}

func (h *history) beat(rt *rapid.T) {
	if d := h.heartbeat(rt, map[string]any{}); d != nil {
		h.recordSign(d)
	}
}

// silence stops a delegate's heartbeats, like a broken network.
func (h *history) silence(rt *rapid.T) {
	if d := h.delegate(h.anyDelegate(rt)); d != nil {
		d.silent = true
	}
}

// outage stops a delegate's heartbeats until it is lost.
func (h *history) outage(rt *rapid.T) {
	h.silence(rt)
	h.jump(rt, h.set.heartbeat/2)
	h.afterOperation()
	h.jump(rt, h.set.heartbeat/2)
}

// beatAll sends the heartbeats of all delegates that are not silent.
func (h *history) beatAll(rt *rapid.T) {
	for _, h.in = range h.accounts {
		for _, d := range h.in.delegates {
			if !d.silent {
				h.expect(rt, 200, "POST", "/api/agent/delegates/heartbeat-with-polling",
					asJSON(map[string]any{"delegateId": d.id, "draining": d.drainsItself}))
				h.recordSign(d)
			}
		}
	}
}

func (h *history) change(rt *rapid.T) {
	tags, types := h.anyTags(rt), pick(rt, "types", abilities)
	name, group := pick(rt, "name", []string{"", "d1", "d3"}), pick(rt, "group", groups)
	d := h.heartbeat(rt, map[string]any{"tags": tags, "supportedTaskTypes": types, "delegateName": name, "group": group})
	if d == nil {
		return
	}
	if group != "" {
		d.group = group
	}
	if name != "" {
		d.name = name
	}
	if types != nil {
		d.types = types
	}
	d.tags = tags
	h.recordSign(d)
}

func (h *history) capacity(rt *rapid.T) {
	h.setCapacity(rt, h.anyDelegate(rt), below(rt, "most", 4))
}

func (h *history) setCapacity(rt *rapid.T, id string, most int) {
	d := h.delegate(id)
	h.expect(rt, h.statusFor(d, 204), "POST", "/api/agent/delegates/register-delegate-capacity/"+id,
		fmt.Sprintf(`{"maximumNumberOfBuilds":%d}`, most))
	if d != nil {
		h.resize(d, most)
	}
}

func (h *history) leave(rt *rapid.T) {
	if !oneIn(rt, "really", 2) {
		rt.Skip("most delegates must stay")
	}
	h.unregister(rt, h.anyDelegate(rt))
}

func (h *history) unregister(rt *rapid.T, id string) {
	d := h.delegate(id)
	h.expect(rt, h.statusFor(d, 204), "POST", "/api/agent/delegates/unregister", asJSON(map[string]string{"delegateId": id}))
	if d != nil {
		h.remove(d)
	}
}

func (h *history) drain(rt *rapid.T) {
	id, verb := h.anyDelegate(rt), pick(rt, "verb", []string{"drain", "resume", "resume", "resume"})
	d := h.delegate(id)
	h.expect(rt, h.statusFor(d, 204), "POST", "/api/delegates/"+id+"/"+verb, "")
	if d != nil {
		d.drainedByManager = verb == "drain"
		h.reassign(d)
	}
}
