package queue

// Gaps: while nobody can reach the queue, because its process is stopped or the log
// of its operations is away, delegates cannot send what is waited for. What became
// due meanwhile would all happen at once afterwards: every delegate lost, every task
// abandoned. So the first operation after [Config.Gap] without one gives all that
// waits for a delegate a fresh time from then, where it has less left: a heartbeat
// HeartbeatTimeout, an offer AcquireTimeout, an answer, also that to an abort, the
// longer of HeartbeatTimeout and AnswerGrace. What waits for time alone does not
// change: the time-outs of stages and single tasks in the queue and of stages that
// run, and what is forgotten some day.
//
// That nothing happens must be told from that nobody is there. While something
// waits for a delegate, [Queue.NextDeadline] is therefore a third of Gap after the
// last operation at the latest.

// bridge gives all that waits for a delegate a fresh time. The caller holds mu.
func (q *Queue) bridge(now instant) {
	answer := max(q.cfg.HeartbeatTimeout, q.cfg.AnswerGrace)
	for _, a := range q.accounts {
		for _, d := range a.delegates { // in any order: the timers know theirs
			if !d.lost {
				q.extend(d, now.after(q.cfg.HeartbeatTimeout))
			}
			for _, r := range d.open {
				if r.timer.armed() {
					q.extend(r, now.after(answer))
				}
				if w := r.work; w.state == given && r == w.first {
					q.extend(w, min(now.after(q.cfg.AcquireTimeout), w.until()))
				}
			}
		}
	}
}

// extend moves a timer to a time, unless it is later already.
func (q *Queue) extend(o owner, at instant) {
	if o.clock().at < at {
		q.arm(o, at)
	}
}

// pulse is when an operation is needed so that there is no gap.
func (q *Queue) pulse() instant {
	if q.cfg.Gap <= 0 || q.present+q.answers == 0 {
		return never
	}
	return q.last.after(max(q.cfg.Gap/3, 1))
}
