package queuetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// check compares the managers with the model and checks the invariants. If there are
// several managers, it compares the account without a change less often, because the
// calls take long.
func (h *history) check(rt *rapid.T) {
	if len(h.managers) == 1 || h.operationCount%4 == 0 {
		h.compareAll(rt)
	} else {
		h.compareAccount(rt, h.in)
	}
	h.checkInvariants(rt)
}

func (h *history) compareAll(rt *rapid.T) {
	for _, a := range h.accounts {
		h.compareAccount(rt, a)
	}
}

// compareAccount compares the managers' answers about an account with the model. It
// parses the answers of the first manager. The other managers must give the same
// answers.
func (h *history) compareAccount(rt *rapid.T, a *account) {
	var first []string
	for i, m := range h.managers {
		shown := h.answers(m, a)
		if i == 0 {
			first = shown
			if d := difference(h.expected(a), h.parse(rt, a, shown)); d != "" {
				rt.Fatalf("account %s:\n%s\nthe model has\n%s", a.name, d, h.story())
			}
		}
		if d := difference(first, shown); d != "" {
			rt.Fatalf("manager %d differs from the first one:\n%s", i, d)
		}
	}
	h.compareEvents(rt, a)
}

func difference(want, got []string) string {
	var b strings.Builder
	for i := range max(len(want), len(got)) {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			fmt.Fprintf(&b, "expected %s\nshown    %s\n", w, g)
		}
	}
	return b.String()
}

// answers returns all answers of a manager about an account. The first call makes
// the manager read its store.
func (h *history) answers(m *manager.Manager, a *account) (all []string) {
	get := func(path string) {
		r := h.call(m, a, "GET", path, "")
		all = append(all, fmt.Sprint(r.status, " ", r.body.String()))
	}
	get("/api/stages")
	get("/api/delegates")
	get("/api/limits")
	for _, d := range a.delegates {
		poll := "/api/agent/delegates/" + d.id + "/task-events"
		if !d.unaware {
			poll += "?wait=0"
		}
		get(poll)
	}
	for _, w := range a.works {
		if w.stage == nil {
			get("/api/tasks/" + w.id)
		}
	}
	return all
}

// expected returns the lines that [history.read] must return.
func (h *history) expected(a *account) (all []string) {
	waits := slices.DeleteFunc(a.waiting(), func(w *work) bool { return w.stage == nil })
	for _, w := range a.works {
		if w.stage == nil {
			continue
		}
		s := fmt.Sprintf("%s of %s %s place %d by %q attempts %q:", w.id, a.name, w.status, slices.Index(waits, w)+1, w.by, w.attempts)
		s += fmt.Sprintf(" open %v, %q;", w.hold != nil && !w.hold.closed, w.kind)
		for _, p := range w.all() {
			s += fmt.Sprintf(" %s(%s) %s %q", p.id, p.task, p.status, p.kind)
		}
		all = append(all, s+"; "+w.reason())
	}
	for _, d := range a.delegates {
		state := "ALIVE"
		switch {
		case d.lost:
			state = "LOST"
		case !d.takes():
			state = "DRAINING"
		}
		works := 0
		for _, r := range d.open {
			if r.state == acquired {
				works++
			}
		}
		all = append(all, fmt.Sprintf("%s %q %s %q %q: %d of %d, %d tasks", d.id, d.name, state, d.tags, d.types, d.slots(), d.maxStages, works))
	}
	for _, g := range []string{"account", "label:env=prod", "pipeline:web"} {
		if most := a.limits[g]; most > 0 {
			all = append(all, fmt.Sprintf("%s %d of %d", g, a.groupUse(g), most))
		}
	}
	for _, d := range a.delegates {
		list := "offered"
		for _, r := range d.open {
			if r.state == offered {
				list += " " + r.kind + " " + r.id
			}
		}
		list += ", to stop"
		for _, r := range stopsOf(d) {
			list += " " + r
		}
		all = append(all, list)
	}
	for _, w := range a.works {
		if w.stage == nil {
			all = append(all, w.taskLine())
		}
	}
	return all
}

func stopsOf(d *delegate) (ids []string) {
	for id := range d.stops {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// taskLine returns the line of a single task.
func (w *work) taskLine() string {
	r, now := w.first, queued
	switch {
	case r.state == done:
		now = status(r.outcome)
	case r.wasAcquired:
		now = isRunning
	}
	by := ""
	if r.d != nil {
		by = r.d.id
	}
	return fmt.Sprintf("%s %s by %q; %s", w.id, now, by, w.reason())
}

// reason returns the beginning of the reason why the work has no delegate yet.
func (w *work) reason() string {
	switch {
	case w.first.state == done:
		return ""
	case w.state == firstOffered:
		return "waiting for"
	case w.state == delayed:
		return "it is not"
	case w.state == waiting && w.acc.paused:
		return "the account is paused"
	case w.state == waiting:
		return "waits"
	}
	return ""
}

// read converts a manager's answers to lines that compare with the model's.
func (h *history) parse(rt *rapid.T, a *account, shown []string) (all []string) {
	next := func(into any) {
		text, ok := strings.CutPrefix(shown[0], "200 ")
		if !ok || json.Unmarshal([]byte(text), into) != nil {
			rt.Fatalf("account %s: %s\nthe model has\n%s", a.name, shown[0], h.story())
		}
		shown = shown[1:]
	}
	var stages struct{ Stages []api.Stage }
	next(&stages)
	for _, s := range stages.Stages {
		var attempts []string
		for _, t := range s.Attempts {
			attempts = append(attempts, string(t.Status))
		}
		line := fmt.Sprintf("%s of %s %s place %d by %q attempts %q:", s.ID, s.Name, s.Status, s.Place, s.DelegateID, attempts)
		line += fmt.Sprintf(" open %v, %q;", s.Open, s.FailureKind)
		for _, p := range append(append([]api.StepState{s.Init}, s.Steps...), s.Cleanup) {
			line += fmt.Sprintf(" %s(%s) %s %q", p.ID, p.TaskID, p.Status, p.FailureKind)
		}
		all = append(all, line+"; "+reasonPrefix(s.Reason))
	}
	var delegates struct{ Delegates []api.Delegate }
	next(&delegates)
	for _, d := range delegates.Delegates {
		all = append(all, fmt.Sprintf("%s %q %s %q %q: %d of %d, %d tasks", d.ID, d.Name, d.State, d.Tags, d.TaskTypes, d.Stages, d.MaxStages, d.Running))
	}
	var limits struct{ Limits []api.Limit }
	next(&limits)
	for _, l := range limits.Limits {
		all = append(all, fmt.Sprintf("%s %d of %d", l.Group, l.Used, l.Max))
	}
	for range a.delegates {
		var l list
		next(&l)
		line := "offered"
		for _, e := range l.Events {
			line += " " + e.Type + " " + e.Task
		}
		all = append(all, line+", to stop"+strings.Join(append([]string{""}, l.Aborted...), " "))
	}
	for len(shown) > 0 {
		var t api.Task
		next(&t)
		all = append(all, fmt.Sprintf("%s %s by %q; %s", t.ID, t.Status, t.DelegateID, reasonPrefix(t.Reason)))
	}
	return all
}

// list is the answer to a poll.
type list struct {
	Events []struct {
		Task string `json:"delegateTaskId"`
		Type string `json:"taskType"`
	} `json:"delegateTaskEvents"`
	Aborted []string `json:"abortedTaskIds"`
}

// reasonPrefix returns the part of a reason that the model predicts.
func reasonPrefix(reason string) string {
	for _, b := range []string{"waiting for", "it is not", "the account is paused"} {
		if strings.HasPrefix(reason, b) {
			return b
		}
	}
	if reason != "" {
		return "waits"
	}
	return ""
}

// compareEvents reads the events since the last call. Each expected event must be
// there once, in order, and no other.
func (h *history) compareEvents(rt *rapid.T, a *account) {
	r := h.call(h.some(rt), a, "GET", fmt.Sprint("/api/events?since=", a.lastEvent), "")
	var news []string
	for _, text := range strings.Split(r.body.String(), "\n\n") {
		var e api.Event
		for _, line := range strings.Split(text, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					rt.Fatalf("%v in %s", err, line)
				}
			}
			if line == "event: missed" {
				rt.Fatalf("the stream misses events after %d", a.lastEvent)
			}
		}
		if e.ID == 0 {
			continue // the place of a waiting stage
		}
		if e.ID != uint64(a.lastEvent+1) { //nolint:gosec // it counts
			rt.Fatalf("event %d is followed by event %d", a.lastEvent, e.ID)
		}
		a.lastEvent++
		news = append(news, describeEvent(&e))
	}
	if d := difference(a.expectedEvents, news); d != "" {
		rt.Fatalf("events of account %s:\n%s\nthe model has\n%s", a.name, d, h.story())
	}
	a.expectedEvents = nil
}

func describeEvent(e *api.Event) string {
	switch e.Type {
	case "stage":
		return fmt.Sprintf("stage %s %s", e.Stage, e.Status)
	case "step":
		return fmt.Sprintf("step %s/%s %s", e.Stage, e.Step, e.Status)
	case "task":
		return fmt.Sprintf("task %s %s", e.Task, e.Status)
	default:
		return fmt.Sprintf("delegate %s %s", e.Delegate, e.Status)
	}
}
