package queue

// Peers are delegates of one account that registered with the same group. They thereby
// declare that each of them can serve the transactions that another one has begun. A
// stage begins at one delegate. The queue offers its further tasks to this delegate first,
// and to a peer
//
//   - if the delegate is lost or unregistered before it has acquired the task;
//   - if it has not acquired the task within AcquireTimeout. Without a free peer the offer
//     stands, and the queue looks again after another AcquireTimeout.
//
// The stage and its slot move with the task. A detached task moves alone: its stage is
// ending. A task that was acquired never moves, because the delegate may have run it.
//
// A peer gets a task if it takes new work, supports the task types of the stage, and has
// the selectors of the stage among its tags. A detached task only needs its own type,
// since it runs nothing of the submitter's. The best candidate of rule Q2 comes first. A
// stage that has begun does not wait for a slot. If no peer has one, a peer loses an offer
// of another stage, or exceeds its capacity and gets no new stages until it has room again.

// groupTag returns the tag that the peers of a group have. No selector matches it, because
// fold returns no capital letter.
func groupTag(group string) string { return "Group " + group }

// peer returns the best delegate to take a further task of a stage from its owner, nil if
// there is none.
func (r *record) peer() *delegate {
	var best *delegate
	var rank candidate
	for d := range r.work.account.holders(groupTag(r.owner.info.Group)) { // in any order: no two are equal
		if d == r.owner || !d.canContinue(r) {
			continue
		}
		c := candidate{free: d.free(), slots: len(d.slots), open: len(d.open), idle: d.Idle, order: d.Order}
		if best == nil || c.before(rank) {
			best, rank = d, c
		}
	}
	return best
}

// canContinue reports whether the delegate may take a further task that a peer has not
// acquired.
func (d *delegate) canContinue(r *record) bool {
	if !d.takesWork() {
		return false
	}
	if r.Detached {
		return d.supports([]string{r.body.Type})
	}
	w := r.work
	return w.State == running && d.hasAll(w.requirement.selectors, "") && d.supports(w.requirement.types[w.Variant])
}

// handOver offers a task that its owner has not acquired to a peer. It returns false if
// there is none.
func (q *Queue) handOver(r *record, now instant) bool {
	to := r.peer()
	if to == nil {
		return false
	}
	q.take(r)
	q.giveFurther(r, to, now)
	return true
}

// giveFurther offers a further task of a stage to a delegate. If that is a peer of the
// stage's delegate, the stage moves to it.
func (q *Queue) giveFurther(r *record, d *delegate, now instant) {
	from := r.work.delegate
	if w := r.work; !r.Detached && w.delegate != d {
		delete(w.delegate.slots, w.ID)
		w.delegate.Idle = now
		w.delegate.touch()
		w.note(w.delegate, missed)
		w.delegate = d
		d.slots[w.ID] = w
	}
	q.give(r, d, now)
	q.arm(r, q.offerDeadline(r, now))
	if !r.Detached && from != d { // the slot goes to the first work that waits, before the excess waits too
		q.dispatch(nil, from, nil, now)
		q.withdrawExcess(d, now)
	}
}

// taskDeadline returns when a further task of a stage times out, whether or not a delegate
// has acquired it.
func (q *Queue) taskDeadline(r *record) instant {
	if r.Detached {
		return never
	}
	return q.answerDeadline(r.body, r.Submitted)
}

// offerDeadline returns when a further task that is offered now times out, or when the
// queue looks for a peer.
func (q *Queue) offerDeadline(r *record, now instant) instant {
	if r.owner.info.Group == "" {
		return q.taskDeadline(r)
	}
	return min(q.taskDeadline(r), now.after(q.cfg.AcquireTimeout))
}
