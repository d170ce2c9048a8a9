package queuetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// This file models the order of a stage's parts (rules T1 and Q4).

// The statuses and outcomes.
const (
	queued    = "QUEUED"
	isRunning = "RUNNING"
	success   = "SUCCESS"
	failure   = "FAILURE"
	timedOut  = "TIMEOUT"
	aborted   = "ABORTED"
	skipped   = "SKIPPED"
	abandoned = "LOST" // the delegate is lost
)

// status returns the status of an outcome.
func status(outcome string) string {
	if outcome == abandoned {
		return failure
	}
	return outcome
}

// stage is the state of a stage beside its work.
type stage struct {
	status   string
	parts    []*part // init, steps, cleanup
	current  *part
	next     int // index of the next part
	stopping string
	failed   string
	kind     string // of the failure
	lost     bool
	started  bool
	by       string   // id of the delegate that runs it or ran it
	attempts []string // the statuses of the earlier attempts
	timeout  time.Duration
	retries  retries
	hold     *hold // nil for a stage without one
}

type retries struct {
	most    int
	on      []string
	backoff time.Duration
}

// part is the init, a step or the cleanup.
type part struct {
	id, first, task string // the tasks of the first and the current attempt
	status, runOn   string
	kind            string // of the failure
	timeout         time.Duration
	request         string // of an appended step
	sent            bool   // an appended step is in the queue
}

func (s *stage) init() *part    { return s.parts[0] }
func (s *stage) cleanup() *part { return s.parts[len(s.parts)-1] }

// kinds are the task types of a stage, by variant: init, execute, cleanup.
var kinds = [][]string{
	{"CI_DOCKER_INITIALIZE_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_CLEANUP_TASK"},
	{"local_init", "local_execute", "local_cleanup"},
}

var execute = map[string]bool{kinds[0][1]: true, kinds[1][1]: true}

type eventKind int

const (
	taskAcquired eventKind = iota
	requeued
	expired
	ended
	lost
	leaseEnded
	stranded
)

// event is a change in the queue.
type event struct {
	kind     eventKind
	w        *work
	r        *record
	d        *delegate
	outcome  string
	acquired bool
	variant  int
}

func (m *model) emit(e event) { m.events = append(m.events, e) }

// handleEvents makes the stages handle the events, and the events that follow from
// them.
func (m *model) handleEvents() {
	for len(m.events) > 0 {
		e := m.events[0]
		m.events = m.events[1:]
		switch {
		case e.kind == lost:
			e.d.acc.expectedEvents = append(e.d.acc.expectedEvents, "delegate "+e.d.id+" LOST")
		case e.w.stage == nil:
			m.handleTaskEvent(&e)
		default:
			m.handleStageEvent(&e)
		}
	}
}

func (m *model) handleTaskEvent(e *event) {
	now := queued
	switch e.kind {
	case taskAcquired:
		now = isRunning
	case ended:
		now = status(e.outcome)
	default:
	}
	e.w.expectEvent(now)
}

// expectEvent adds the event that a stage or a single task has a status.
func (w *work) expectEvent(status string) {
	kind := "stage "
	if w.stage == nil {
		kind = "task "
	}
	w.acc.expectedEvents = append(w.acc.expectedEvents, kind+w.id+" "+status)
}

func (w *work) expectStepEvent(p *part) {
	w.acc.expectedEvents = append(w.acc.expectedEvents, fmt.Sprintf("step %s/%s %s", w.id, p.id, p.status))
}

func (m *model) handleStageEvent(e *event) {
	w := e.w
	all := w.all()
	i := slices.IndexFunc(all, func(p *part) bool { return p.task == e.r.id })
	switch e.kind {
	case taskAcquired:
		if i < 0 {
			return // a task of an earlier attempt
		}
		p := all[i]
		p.status = isRunning
		if p == w.init() {
			w.status, w.started, w.by, w.variant = isRunning, true, e.d.id, e.variant
			w.expectEvent(isRunning)
		} else if w.by != e.d.id && !w.over() {
			w.by = e.d.id
			w.expectEvent(isRunning)
		}
		w.expectStepEvent(p)
	case requeued:
		w.status, w.started, w.by, w.init().status = queued, false, "", queued
		w.expectEvent(queued)
	case expired:
		m.stopStage(w, timedOut, "timeout")
	case ended:
		if i >= 0 {
			m.handleTaskEnd(e, all[i])
		}
	case leaseEnded:
		m.stopStage(w, failure, "lease_ended")
	case stranded:
		m.strandHeld(w)
	default:
	}
}

func (m *model) handleTaskEnd(e *event, p *part) {
	w := e.w
	p.status, p.kind = status(e.outcome), w.kindOf(e, p)
	w.expectStepEvent(p)
	switch {
	case w.over():
	case e.outcome == abandoned && (w.hold == nil || p == w.cleanup()):
		m.delegateLost(w, p)
	case p == w.cleanup():
		m.finish(w)
	case p == w.init() && !e.acquired:
		w.recordFailure(p)
		w.skipRemaining()
		p := w.cleanup()
		p.status = skipped
		m.finish(w)
	case w.hold != nil:
		m.heldPartEnded(w, p, e.outcome == abandoned)
	default:
		if p.status != success {
			w.recordFailure(p)
		}
		m.startNext(w)
	}
}

func (s *stage) over() bool { return s.status != queued && s.status != isRunning }

func (s *stage) recordFailure(p *part) {
	if s.failed == "" {
		s.failed = p.status
		if s.kind == "" {
			s.kind = p.kind
		}
	}
}

func (s *stage) skipRemaining() {
	for ; s.next < len(s.parts)-1; s.next++ {
		if s.parts[s.next].status == queued {
			s.parts[s.next].status = skipped
		}
	}
}

// startNext sends the next step that runs, or the cleanup.
func (m *model) startNext(w *work) {
	for ; w.next < len(w.parts)-1; w.next++ {
		p := w.parts[w.next]
		if p.status == aborted {
			w.recordFailure(p)
			continue
		}
		runs := p.runOn == "always" || (p.runOn == "failure") == (w.failed != "")
		if runs && w.stopping == "" && !w.lost && w.init().status == success {
			w.next++
			m.sendPart(w, p)
			return
		}
		p.status = skipped
	}
	if w.hold != nil {
		m.settle(w)
		return
	}
	m.sendPart(w, w.cleanup())
}

// sendPart sends the next part to the stage's delegate.
func (m *model) sendPart(w *work, p *part) {
	w.current = p
	m.send(w, p)
}

// send sends a part to the stage's delegate.
func (m *model) send(w *work, p *part) {
	r := m.newTask(w, p)
	r.d = w.d
	switch d := m.server(r); {
	case d.lost:
		m.endTask(r, abandoned)
	default:
		m.giveFurther(r, d)
	}
}

// newTask creates the task of a part.
func (m *model) newTask(w *work, p *part) *record {
	kind := 1
	switch p {
	case w.init():
		kind = 0
	case w.cleanup():
		kind = 2
	}
	r := &record{w: w, id: p.task, kind: kinds[w.variant][kind], timeout: p.timeout, submitted: m.now, at: never}
	w.tasks = append(w.tasks, r)
	return r
}

// delegateLost ends a stage whose delegate is lost. A cleanup waits for the
// delegate's return.
func (m *model) delegateLost(w *work, p *part) {
	w.lost = true
	if p != w.cleanup() {
		w.recordFailure(p)
	}
	m.leaveCleanup(w, p != w.cleanup())
}

// leaveCleanup ends a stage whose delegate is lost. First means that no cleanup was sent.
func (m *model) leaveCleanup(w *work, first bool) {
	last := w.cleanup()
	w.skipRemaining()
	again := *last
	again.task, again.status, again.kind = last.task+"-again", queued, ""
	r := m.newTask(w, &again)
	r.d, r.detached, r.kind = w.d, true, kinds[w.variant][2]
	if d := m.server(r); !d.removed {
		m.giveFurther(r, d)
		*last = again
	} else {
		w.tasks = w.tasks[:len(w.tasks)-1]
		if first {
			last.status = skipped
		}
	}
	m.finish(w)
}

// finish ends a stage, or starts another attempt.
func (m *model) finish(w *work) {
	if m.retryStage(w) {
		return
	}
	w.current = nil
	if w.hold != nil {
		w.close()
		w.skipAppended()
	}
	w.status = success
	if w.failed != "" {
		w.status = w.failed
	}
	if w.stopping != "" {
		w.status = w.stopping
	}
	w.expectEvent(w.status)
	m.release(w)
}

// retryStage starts another attempt of a stage if its policy allows it.
func (m *model) retryStage(w *work) bool {
	why := "failure"
	switch {
	case w.lost, w.kind == "delegate_lost":
		why = "lost"
	case w.failed == timedOut:
		why = "timeout"
	}
	n := len(w.attempts) + 2
	if w.stopping != "" || w.failed == "" || w.failed == aborted || !w.started || n > w.retries.most || !slices.Contains(w.retries.on, why) {
		return false
	}
	w.attempts = append(w.attempts, w.failed)
	w.status, w.failed, w.kind, w.lost, w.started, w.by, w.next = queued, "", "", false, false, "", 1
	for _, p := range w.parts {
		p.task, p.status, p.kind = p.first+"-"+strconv.Itoa(n), queued, ""
	}
	w.current = w.init()
	first := &record{w: w, id: w.init().task, timeout: w.init().timeout, at: never}
	m.requeueForRetry(w, first, m.now+w.retries.backoff<<(n-2))
	w.expectEvent(queued)
	return true
}

// stopStage ends a stage early.
func (m *model) stopStage(w *work, why, kind string) {
	if w.stopping != "" || w.over() || w.current == w.cleanup() {
		return
	}
	w.stopping, w.kind = why, kind
	if w.hold != nil {
		m.stopHeld(w)
		return
	}
	m.abortTask(w.acc.task(w.current.task))
}

// kindOf returns the kind of the failure of a part.
func (w *work) kindOf(e *event, p *part) string {
	switch {
	case e.outcome == success:
		return ""
	case e.outcome == abandoned:
		return "delegate_lost"
	case e.outcome == aborted:
		return "aborted"
	case e.outcome == timedOut:
		return "timeout"
	case e.r.handedBack:
		return "refused"
	case p == w.init():
		return "infrastructure"
	}
	return "unknown"
}
