package queuetest

import "slices"

// This file models the delegates' calls.

// recordSign records a sign of life of a delegate, and its description of itself.
func (m *model) recordSign(d *delegate) {
	d.at = m.now + m.set.heartbeat
	if d.lost {
		d.lost, d.idle = false, m.now
		d.acc.expectedEvents = append(d.acc.expectedEvents, "delegate "+d.id+" ALIVE")
	}
	m.reassign(d)
}

// reassign gives a delegate new work, or withdraws its offers if it may have none.
func (m *model) reassign(d *delegate) {
	if !d.takes() {
		m.withdrawOffers(d)
	}
	m.dispatch(d.acc)
}

// resize sets a delegate's capacity.
func (m *model) resize(d *delegate, most int) {
	d.maxStages = most
	m.withdrawExcess(d)
	m.dispatch(d.acc)
}

// withdrawExcess withdraws offers of stages that exceed the delegate's capacity.
func (m *model) withdrawExcess(d *delegate) {
	offers := slices.DeleteFunc(d.offers(), func(w *work) bool { return w.stage == nil })
	if most := d.maxStages; most > 0 {
		for _, w := range offers[max(0, len(offers)-max(0, d.slots()-most)):] {
			m.requeue(w)
		}
	}
}

// loseDelegate models a delegate's heartbeat time-out.
func (m *model) loseDelegate(d *delegate) {
	d.lost, d.at = true, m.now+m.set.forget
	m.emit(event{kind: lost, d: d})
	m.withdrawOffers(d)
	m.strand(d)
	for _, r := range slices.Clone(d.open) {
		if (r.state != offered || !m.handOver(r)) && !r.detached {
			m.endTask(r, abandoned)
		}
	}
}

// remove drops a delegate for good.
func (m *model) remove(d *delegate) {
	offers := d.offers()
	d.lost, d.removed, d.at = true, true, never
	a := d.acc
	a.delegates = slices.DeleteFunc(a.delegates, func(o *delegate) bool { return o == d })
	a.removed = append(a.removed, d.id)
	for _, w := range offers {
		m.requeue(w)
	}
	m.strand(d)
	for _, r := range slices.Clone(d.open) {
		if r.state != offered || !m.handOver(r) {
			m.endTask(r, abandoned)
		}
	}
	clear(d.stops)
}

// acquire assigns a task to a delegate. It reports false if the delegate may not
// have the task.
func (m *model) acquire(d *delegate, id string) *record {
	i := slices.IndexFunc(d.open, func(r *record) bool { return r.id == id })
	if i < 0 || d.open[i].stopping || d.open[i].awaitsAgent {
		return nil
	}
	r, w := d.open[i], d.open[i].w
	if r.state == acquired {
		return r
	}
	r.state, r.wasAcquired = acquired, true
	r.at = m.now + r.timeout + m.set.answer
	if r == w.first {
		w.state, w.at = running, never
		if w.stage != nil && w.timeout > 0 {
			w.at = m.now + w.timeout
		}
	}
	m.emit(event{kind: taskAcquired, w: w, r: r, d: d, variant: w.variant})
	return r
}

// answer is an answer of a delegate, with the outcome that it has.
type answer struct {
	body           string
	outcome        string
	another, going bool // the answer asks for another delegate; the answer says that an agent answers later
}

var answers = []answer{
	{body: `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`, outcome: success},
	{body: `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`, outcome: success},
	{body: `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`, outcome: success},
	{body: `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`, outcome: success},
	{body: `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`, outcome: success},
	{body: `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`, outcome: success},
	{body: `{"code":"OK","data":{"command_execution_status":"FAILURE"}}`, outcome: failure},
	{body: `{"code":"FAILED"}`, outcome: failure},
	{body: `{"code":"TIMEOUT"}`, outcome: timedOut},
	{body: `{"code":"RETRY_ON_OTHER_DELEGATE"}`, outcome: failure, another: true},
	{body: `{"code":"RETRY_ON_OTHER_DELEGATE"}`, outcome: failure, another: true},
	{body: `{"code":"OK","data":{"command_execution_status":"RUNNING"}}`, outcome: failure, going: true},
	{body: `{"code":"OK","data":{"command_execution_status":"RUNNING"}}`, outcome: failure, going: true},
}

// answer applies an answer and returns its HTTP status.
func (m *model) answer(a *account, delegate, id string, with answer) int {
	r := a.task(id)
	if r == nil {
		return 404
	}
	w := r.w
	with.going = with.going && execute[r.kind]
	switch {
	case r == w.first && w.rejections[delegate] == refused,
		r.former && w.rejections[delegate] == missed:
		return 204
	case r.d == nil || r.d.id != delegate || r.state == offered || r.state == idle:
		return 409
	case r.state == done:
		if !with.going {
			delete(r.d.stops, id)
		}
		return 204
	case with.going:
		r.awaitsAgent = true
		return 204
	}
	delete(r.d.stops, id)
	if with.another && r == w.first && !r.stopping && !r.awaitsAgent && w.refusals()+1 < m.set.attempts {
		w.rejections[delegate] = refused
		m.requeue(w)
		return 204
	}
	r.answered, r.handedBack = true, with.another
	if r.stopping {
		with.outcome = aborted
	}
	m.endTask(r, with.outcome)
	return 204
}

func (w *work) refusals() (n int) {
	for _, f := range w.rejections {
		if f == refused {
			n++
		}
	}
	return n
}

// task returns a task that the managers still know, or nil.
func (a *account) task(id string) *record {
	for _, w := range a.works {
		for _, r := range w.tasks {
			if r.id == id {
				return r
			}
		}
	}
	return nil
}
