package queue

// Gaps. While the process of the queue is stopped, or the log of its operations is
// away, delegates cannot send what the queue waits for. Everything that became due
// would happen at once afterwards: every delegate lost, every task abandoned. So the
// first operation after [Config.Gap] without one gives delegates more time, counted
// from then, where they have less left:
//
//	a heartbeat                         HeartbeatTimeout
//	the acquisition of an offer         AcquireTimeout
//	an answer, to an abort too          the longer of HeartbeatTimeout and AnswerGrace
//
// Other times do not change: the time-outs of works in the queue, the time-outs of
// stages that run, and the times at which the queue forgets something.
//
// An unused queue has no gap. So while something waits for a delegate,
// [Queue.NextDeadline] is at most a third of Gap after the last operation.

// bridgeGap gives delegates more time. The caller holds mu.
func (q *Queue) bridgeGap(now instant) {
	answer := max(q.cfg.HeartbeatTimeout, q.cfg.AnswerGrace)
	for _, a := range q.accounts {
		for _, d := range a.delegates { // in any order: the timers know theirs
			if !d.lost {
				q.extend(d, now.after(q.cfg.HeartbeatTimeout))
			}
			for _, r := range d.open {
				if r.due != 0 {
					q.extend(r, now.after(answer))
				}
				if w := r.work; w.state == given && r == w.first {
					q.extend(w, min(now.after(q.cfg.AcquireTimeout), w.queueDeadline()))
				}
			}
		}
	}
}

// extend moves a deadline, unless it is later already.
func (q *Queue) extend(t timed, at instant) {
	if *t.deadline() < at {
		q.arm(t, at)
	}
}

// pulse returns when an operation is needed so that there is no gap.
func (q *Queue) pulse() instant {
	if q.cfg.Gap <= 0 || q.present+q.answers == 0 {
		return never
	}
	return q.last.after(max(q.cfg.Gap/3, 1))
}
