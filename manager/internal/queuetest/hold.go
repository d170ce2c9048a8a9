package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/api"
)

// This file models stages that are held open, and the calls about them.

// hold is the state of a stage that was submitted with a hold.
type hold struct {
	lease    time.Duration
	closed   bool
	appended []*part
}

// all returns the parts of a stage in the order in which the API shows them.
func (s *stage) all() []*part {
	if s.hold == nil {
		return s.parts
	}
	return slices.Insert(slices.Clone(s.parts), len(s.parts)-1, s.hold.appended...)
}

// step returns the step with an id, or nil.
func (s *stage) step(id string) *part {
	all := s.all()
	for _, p := range all[1 : len(all)-1] {
		if p.id == id {
			return p
		}
	}
	return nil
}

// inQueue reports whether a part of the stage is in the queue.
func (s *stage) inQueue() bool {
	return s.current != nil || slices.ContainsFunc(s.hold.appended, func(p *part) bool { return p.sent })
}

// close makes the stage take no more steps.
func (w *work) close() { w.hold.closed, w.leaseEnds = true, 0 }

func (w *work) skipAppended() {
	for _, p := range w.hold.appended {
		if p.status == queued && !p.sent {
			p.status = skipped
			w.expectStepEvent(p)
		}
	}
}

// sendAppended sends an appended step, unless it was aborted or skipped before.
func (m *model) sendAppended(w *work, p *part) {
	switch p.status {
	case queued:
		p.sent = true
		m.send(w, p)
	case aborted:
		w.recordFailure(p)
	}
}

func (m *model) heldPartEnded(w *work, p *part, lost bool) {
	inOrder := !p.sent
	p.sent = false
	if inOrder {
		w.current = nil
	}
	if p.status != success {
		w.recordFailure(p)
	}
	if lost {
		w.lost = true
		m.stopHeld(w)
		return
	}
	if p == w.init() && p.status == success {
		for _, a := range w.hold.appended {
			m.sendAppended(w, a)
		}
	} else if p == w.init() {
		w.close()
		w.skipAppended()
	}
	if inOrder {
		m.startNext(w)
	} else {
		m.settle(w)
	}
}

// settle sends the cleanup of a held stage if nothing else is left to do.
func (m *model) settle(w *work) {
	switch {
	case w.inQueue() || !w.hold.closed:
	case w.lost:
		m.leaveCleanup(w, true)
	default:
		m.sendPart(w, w.cleanup())
	}
}

// stopHeld aborts all parts of a held stage that are in the queue.
func (m *model) stopHeld(w *work) {
	w.close()
	w.skipAppended()
	if w.current != nil {
		m.abortTask(w.acc.task(w.current.task))
	}
	for _, p := range w.hold.appended {
		if p.sent {
			m.abortTask(w.acc.task(p.task))
		}
	}
	m.settle(w)
}

// strand reports the held stages of a delegate that is gone, if they have no part in the
// queue and no other delegate can continue them.
func (m *model) strand(d *delegate) {
	for _, w := range d.acc.works {
		if w.d != d || w.state != running || w.leaseEnds == 0 {
			continue
		}
		open := slices.ContainsFunc(w.tasks, func(r *record) bool { return r.state != done && !r.detached })
		if !open && m.peer(&record{w: w, d: d}) == nil {
			m.emit(event{kind: stranded, w: w, r: w.first})
		}
	}
}

func (m *model) strandHeld(w *work) {
	if w.over() || w.inQueue() {
		return
	}
	if w.failed == "" {
		w.failed, w.kind = failure, "delegate_lost"
	}
	w.lost = true
	m.stopHeld(w)
}

// anyStage draws a work, preferably a stage with a hold that has not ended.
func (h *history) anyStage(rt *rapid.T) *work {
	all := h.in.works
	held := slices.DeleteFunc(slices.Clone(all), func(w *work) bool { return w.stage == nil || w.hold == nil || w.over() })
	if len(held) > 0 && !oneIn(rt, "any", 8) {
		all = held
	}
	if len(all) == 0 {
		rt.Skip("nothing was submitted")
	}
	return all[below(rt, "work", len(all))]
}

// appendSteps appends up to three steps to a stage, some of which it may have.
func (h *history) appendSteps(rt *rapid.T) {
	w := h.anyStage(rt)
	var requests []string
	var ids []string
	for range 1 + below(rt, "steps", 3) {
		id := pick(rt, "step", []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "step1"})
		if slices.Contains(ids, id) {
			continue
		}
		command := "true"
		if oneIn(rt, "another command", 12) {
			command = "false"
		}
		ids = append(ids, id)
		requests = append(requests, fmt.Sprintf(`{"id":%q,"timeout_ms":%d,"data":{"run":{"commands":[%q]}}}`, id, h.stepTimeout(), command))
	}
	path, body := "/api/stages/"+w.id+"/steps", `{"steps":[`+strings.Join(requests, ",")+`]}`
	status, added := w.appendStatus(ids, requests)
	got := h.expect(rt, status, "POST", path, body)
	if status >= 300 {
		return
	}
	if !w.hold.closed {
		w.leaseEnds = h.now + w.hold.lease
	}
	var now api.Stage
	got.into(rt, &now)
	for _, i := range added {
		p := &part{id: ids[i], status: queued, request: requests[i], timeout: orDefault(h.stepTimeout(), h.set.task)}
		at := slices.IndexFunc(now.Steps, func(s api.StepState) bool { return s.ID == ids[i] })
		if at < 0 {
			rt.Fatalf("appended %s and got %+v", body, now)
		}
		p.task, p.first = now.Steps[at].TaskID, now.Steps[at].TaskID
		w.hold.appended = append(w.hold.appended, p)
		w.expectStepEvent(p)
		if w.init().status == success {
			h.sendAppended(w, p)
		}
	}
}

// appendStatus returns the status of a call that appends steps, and the indices of those
// that are new.
func (w *work) appendStatus(ids, requests []string) (status int, added []int) {
	if w.stage == nil {
		return 404, nil
	}
	if w.hold == nil {
		return 409, nil
	}
	for i, id := range ids {
		switch p := w.step(id); {
		case p == nil:
			added = append(added, i)
		case p.request != requests[i]:
			return 409, nil
		}
	}
	switch {
	case len(added) == 0:
		return 200, nil
	case w.hold.closed:
		return 409, nil
	}
	return 202, added
}

// finishStage closes a stage, or repeats that.
func (h *history) finishStage(rt *rapid.T) {
	w := h.anyStage(rt)
	h.expect(rt, w.heldStatus(false), "POST", "/api/stages/"+w.id+"/finish", "")
	if w.stage != nil && w.hold != nil && !w.hold.closed {
		w.close()
		h.settle(w)
	}
}

func (h *history) renewStage(rt *rapid.T) {
	w := h.anyStage(rt)
	status := w.heldStatus(true)
	h.expect(rt, status, "POST", "/api/stages/"+w.id+"/renew", "")
	if status == 200 {
		w.leaseEnds = h.now + w.hold.lease
	}
}

// heldStatus returns the status of a call about a stage that must have a hold, or be open.
func (w *work) heldStatus(open bool) int {
	switch {
	case w.stage == nil:
		return 404
	case w.hold == nil || open && w.hold.closed:
		return 409
	}
	return 200
}

func (h *history) abortStep(rt *rapid.T) {
	w := h.anyStage(rt)
	id := pick(rt, "step", []string{"a1", "a2", "a3", "a4", "step1", "step2", "init"})
	var p *part
	status := 404
	if w.stage != nil {
		if p = w.step(id); p != nil {
			status = 200
		}
	}
	h.expect(rt, status, "POST", "/api/stages/"+w.id+"/steps/"+id+"/abort", "")
	switch {
	case p == nil || p.status != queued && p.status != isRunning:
	case p == w.current || p.sent:
		h.abortTask(w.acc.task(p.task))
	default:
		p.status, p.kind = aborted, "aborted"
		w.expectStepEvent(p)
	}
}
