package queuetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

// maxLive is the largest number of stages and single tasks that have not ended.
const maxLive = 12

func (h *history) newID(rt *rapid.T, prefix string) string {
	live := 0
	for _, a := range h.accounts {
		for _, w := range a.works {
			if w.state != over {
				live++
			}
		}
	}
	if live >= maxLive {
		rt.Skip("the limit of live work is reached")
	}
	h.in.idCount++
	return fmt.Sprint(prefix, h.in.idCount)
}

// timeout draws no time-out, or one that a jump can reach.
func (h *history) timeout(rt *rapid.T, what string, seconds int) int64 {
	if h.clock == nil || !oneIn(rt, what, 3) {
		return 0
	}
	return int64(seconds) * 1000 // milliseconds
}

// stepTimeout returns the time-out of appended steps.
func (h *history) stepTimeout() task.Millis {
	if h.clock == nil {
		return 0
	}
	return 25_000
}

// orDefault returns a time-out, or its default.
func orDefault[M ~int64](ms M, d time.Duration) time.Duration {
	if ms == 0 {
		return d
	}
	return task.Millis(ms).Duration()
}

func (h *history) anySelectors(rt *rapid.T) []string {
	return pick(rt, "selectors", selectors)
}

// anInit makes a stage without steps acceptable: the API refuses an empty stage.
var anInit = json.RawMessage(`{"envs":{}}`)

var priorities = []string{"", "NORMAL", "HIGH"}

func (h *history) submitStage(rt *rapid.T) {
	req := api.StageRequest{
		ID: h.newID(rt, "s"), Name: h.in.name, Selectors: h.anySelectors(rt), Priority: pick(rt, "priority", priorities),
		TimeoutMS: h.timeout(rt, "timeout", 50), QueueTimeoutMS: h.timeout(rt, "queue", 40), InitTimeoutMS: h.timeout(rt, "init", 15),
		Pipeline: pick(rt, "pipeline", []string{"", "web"}),
		Init:     anInit,
	}
	if oneIn(rt, "label", 3) {
		req.Labels = map[string]string{"env": "prod"}
	}
	if oneIn(rt, "hold", 3) {
		req.Hold = &api.Hold{LeaseMS: 60_000}
		if h.clock == nil {
			req.Hold.LeaseMS = 86_400_000
		}
	} else if oneIn(rt, "retry", 3) {
		req.Retry = &api.Retry{
			MaxAttempts: 1 + below(rt, "attempts", 3), BackoffMS: 10_000, MaxBackoffMS: 40_000,
			On: pick(rt, "on", [][]string{{"lost"}, {"timeout"}, {"failure"}, {"lost", "failure", "timeout"}}),
		}
		if h.clock == nil {
			req.Retry.BackoffMS, req.Retry.MaxBackoffMS = 3_600_000, 14_400_000
		}
	}
	for i := range below(rt, "steps", 3) {
		req.Steps = append(req.Steps, api.StepRequest{
			ID: fmt.Sprint("step", i+1), RunOn: pick(rt, "run on", []string{"", "", "failure", "always"}),
			TimeoutMS: h.timeout(rt, "step", 15),
		})
	}
	w := &work{
		acc: h.in, id: req.ID, request: asJSON(req), high: req.Priority == "HIGH", selectors: req.Selectors,
		variants: kinds, groups: []string{"account"}, queueTimeout: orDefault(req.QueueTimeoutMS, h.set.queue),
		stage: &stage{status: queued, timeout: task.Millis(req.TimeoutMS).Duration(), next: 1},
	}
	if req.Hold != nil {
		w.hold = &hold{lease: task.Millis(req.Hold.LeaseMS).Duration()}
	}
	if req.Pipeline != "" {
		w.groups = append(w.groups, "pipeline:web")
	}
	if req.Labels != nil {
		w.groups = append(w.groups, "label:env=prod")
	}
	if r := req.Retry; r != nil {
		w.retries = retries{r.MaxAttempts, r.On, task.Millis(r.BackoffMS).Duration()}
	}
	var got api.Stage
	h.expect(rt, 202, "POST", "/api/stages", w.request).into(rt, &got)
	if got.ID != w.id || len(got.Steps) != len(req.Steps) {
		rt.Fatalf("submitted %s and got %+v", w.request, got)
	}
	add := func(s api.StepState, runOn string, timeout time.Duration) {
		w.parts = append(w.parts, &part{id: s.ID, first: s.TaskID, task: s.TaskID, status: queued, runOn: runOn, timeout: timeout})
	}
	add(got.Init, "", orDefault(req.InitTimeoutMS, h.set.task))
	for i, s := range got.Steps {
		add(s, req.Steps[i].RunOn, orDefault(req.Steps[i].TimeoutMS, h.set.task))
	}
	add(got.Cleanup, "", h.set.cleanup)
	w.current = w.init()
	h.submit(w, w.init().task, w.init().timeout)
}

func (h *history) submitTask(rt *rapid.T) {
	req := manager.TaskRequest{
		Task:      task.Task{ID: h.newID(rt, "t"), Type: pick(rt, "type", []string{"custom", "custom", "custom", "rare"})},
		Selectors: h.anySelectors(rt), Priority: pick(rt, "priority", priorities),
		QueueTimeout: task.Millis(h.timeout(rt, "queue", 40)),
	}
	req.Task.Timeout = task.Millis(h.timeout(rt, "timeout", 20))
	timeout := orDefault(req.Task.Timeout, h.set.task)
	w := &work{
		acc: h.in, id: req.Task.ID, request: asJSON(req), high: req.Priority == "HIGH", selectors: req.Selectors,
		variants: [][]string{{req.Task.Type}}, queueTimeout: orDefault(req.QueueTimeout, timeout),
	}
	h.expect(rt, 202, "POST", "/api/tasks", w.request)
	h.submit(w, w.id, timeout)
}

// submit adds a work item and dispatches it.
func (m *model) submit(w *work, first string, timeout time.Duration) {
	w.seq, w.rejections, w.at = m.number(), map[string]rejection{}, never
	if w.stage != nil && w.hold != nil {
		w.leaseSeq, w.leaseEnds = m.number(), m.now+w.hold.lease
	}
	w.first = &record{w: w, id: first, kind: w.variants[0][0], timeout: timeout, submitted: m.now, at: never}
	w.tasks = []*record{w.first}
	w.acc.works = append(w.acc.works, w)
	m.enqueue(w)
	m.dispatch(w.acc)
	now := queued
	w.expectEvent(now)
}

// submitAgain submits under an id that exists: the same request, or another one.
func (h *history) submitAgain(rt *rapid.T) {
	if len(h.in.works) == 0 {
		rt.Skip("nothing was submitted")
	}
	w := h.in.works[below(rt, "work", len(h.in.works))]
	path := "/api/stages"
	if w.stage == nil {
		path = "/api/tasks"
	}
	switch below(rt, "what", 3) {
	case 0:
		h.expect(rt, 200, "POST", path, w.request)
	case 1:
		i := slices.Index(priorities, "HIGH")
		if w.high {
			i--
		}
		h.expect(rt, 409, "POST", "/api/stages", asJSON(api.StageRequest{ID: w.id, Priority: priorities[i], Init: anInit}))
	default:
		h.expect(rt, 409, "POST", "/api/tasks", fmt.Sprintf(`{"id":%q,"type":"yet another"}`, w.id))
	}
}
