package queue

import "cmp"

// finished is a work in a list of those that have ended, the oldest first.
type finished struct{ *work }

func (w finished) before(o finished) bool { return w.Ended < o.Ended }

// share is an account with the number or the size of its ended works. The largest share is
// the first one of a list.
type share struct {
	amount  int
	account *account
}

func (s share) before(o share) bool {
	return cmp.Or(cmp.Compare(o.amount, s.amount), cmp.Compare(s.account.id, o.account.id)) < 0
}

// remember makes a work the last one that has ended.
func (q *Queue) remember(w *work) {
	q.unlist(w)
	q.ends++
	w.Ended = q.ends
	q.list(w)
}

// list adds an ended work to the lists.
func (q *Queue) list(w *work) {
	q.finished.insert(finished{w})
	w.account.finished.insert(finished{w})
	q.count(w.account, 1, w.Size)
}

// unlist removes an ended work from the lists, if it is there.
func (q *Queue) unlist(w *work) {
	before := q.finished.size
	q.finished.remove(finished{w})
	if q.finished.size == before {
		return
	}
	w.account.finished.remove(finished{w})
	q.count(w.account, -1, -w.Size)
}

// count changes the number and the size of the ended works of an account.
func (q *Queue) count(a *account, works, bytes int) {
	q.byNumber.remove(share{a.ended, a})
	q.bySize.remove(share{a.endedBytes, a})
	a.ended += works
	a.endedBytes += bytes
	q.bytes += bytes
	if a.ended > 0 {
		q.byNumber.insert(share{a.ended, a})
		q.bySize.insert(share{a.endedBytes, a})
	}
}

// maxForgotten bounds how many works are forgotten when another one ends. Settings that
// became smaller, and works that must be kept, may leave many; then it takes several
// ends.
const maxForgotten = 64

// forgetExcess forgets the oldest ended works above the limits, but not the last one
// that ended: its caller may ask for its result.
func (q *Queue) forgetExcess(now instant) {
	newest := q.ends
	kept := map[*account]bool{} // accounts whose works must all be kept
	for n := min(q.finished.size-1, maxForgotten); n > 0; n-- {
		if q.finished.size <= q.cfg.MaxFinished && q.bytes <= q.cfg.MaxFinishedBytes {
			return
		}
		w := q.nextForgotten(newest, kept)
		if w == nil || w.Ended == newest {
			return
		}
		if !q.forget(w, now) {
			q.remember(w) // a cleanup waits for its delegate
		}
	}
}

// nextForgotten returns the ended work that is forgotten first: the oldest one of all, or with
// FairRetention the oldest one of the account that has most. It returns nil if all works must be
// kept. Works that ended after newest are those that forgetExcess has to keep.
func (q *Queue) nextForgotten(newest int, kept map[*account]bool) *work {
	if !q.cfg.FairRetention {
		first, _ := q.finished.first()
		return first.work
	}
	shares := &q.bySize
	if q.finished.size > q.cfg.MaxFinished {
		shares = &q.byNumber
	}
	for s := range shares.all() {
		if kept[s.account] {
			continue
		}
		if first, _ := s.account.finished.first(); first.Ended <= newest {
			return first.work
		}
		kept[s.account] = true
	}
	return nil
}

// forget drops an ended work and its tasks. It keeps a work with a task that has not
// ended, and tries again after another Retention.
func (q *Queue) forget(w *work, now instant) bool {
	for r := range w.tasks {
		if r.State != done {
			q.arm(w, now.after(q.cfg.Retention))
			return false
		}
	}
	q.disarm(w)
	q.unlist(w)
	delete(w.account.works, w.ID)
	for r := range w.tasks {
		delete(w.account.tasks, r.ID)
		if r.owner != nil {
			delete(r.owner.stops, r.ID)
		}
	}
	q.events = append(q.events, Event{Kind: Forgotten, At: now.time(), Account: w.account.id, Work: w.ID})
	return true
}
