package queuetest

import "time"

// timer is a change at a given time.
type timer struct {
	at  time.Duration
	age int
	due func()
}

// nextTimer returns the first timer. Among timers of the same time, the oldest is
// first.
func (m *model) nextTimer() timer {
	first := timer{at: never}
	add := func(at time.Duration, age int, due func()) {
		if at < first.at || at == first.at && age < first.age {
			first = timer{at, age, due}
		}
	}
	for _, a := range m.accounts {
		for _, d := range a.delegates {
			add(d.at, d.order, func() { m.silent(d) })
		}
		for _, w := range a.works {
			add(w.at, w.seq, func() { m.dueWork(w) })
			if w.leaseEnds > 0 {
				add(w.leaseEnds, w.leaseSeq, func() {
					w.leaseEnds = 0
					m.emit(event{kind: leaseEnded, w: w, r: w.first})
				})
			}
			for _, r := range w.tasks {
				add(r.at, r.seq, func() { m.dueTask(r) })
			}
		}
	}
	return first
}

// advance lets time pass. All timers that are due fire before the stages handle the
// events.
func (m *model) advance(d time.Duration) {
	m.now += d
	for t := m.nextTimer(); t.at <= m.now; t = m.nextTimer() {
		t.due()
	}
	m.handleEvents()
}

func (m *model) silent(d *delegate) {
	if d.lost {
		m.remove(d)
	} else {
		m.loseDelegate(d)
	}
}

func (m *model) dueWork(w *work) {
	w.at = never
	switch w.state {
	case waiting:
		m.endTask(w.first, timedOut)
	case delayed:
		m.enqueue(w)
		m.dispatch(w.acc)
	case firstOffered:
		if m.now >= w.queueDeadline() {
			m.endTask(w.first, timedOut)
			return
		}
		w.rejections[w.d.id] = missed
		m.requeue(w)
	case running:
		m.emit(event{kind: expired, w: w, r: w.first})
	case over:
		m.forget(w)
	}
}

func (m *model) dueTask(r *record) {
	if r.state == offered && m.now < m.deadline(r) { // the offer of a further task
		if !m.handOver(r) {
			r.at = m.offerDeadline(r)
		}
		return
	}
	r.at = never
	if r.stopping {
		m.endTask(r, aborted)
	} else {
		m.endTask(r, timedOut)
	}
}
