package queue

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
)

// Save writes the whole state for [Queue.Load]. Replicas that have carried out the same
// operations at the same times save the same bytes. The bytes contain the payloads of
// the tasks, with all secrets in them (rule S5).
//
// Save blocks all other operations. It fails while there are [Queue.Events] that the
// reader has not taken: events are not saved. It also fails for a task whose fields are
// not valid JSON.
func (q *Queue) Save(w io.Writer) error {
	defer q.unlock(q.lock())
	if len(q.events) > 0 {
		return errors.New("saving the queue: take its events first")
	}
	s := recordWriter{w: bufio.NewWriterSize(w, 64<<10)}
	q.ends = 0
	for w := range q.finished.all() { // the numbers of a loaded queue
		q.ends++
		w.Ended = q.ends
	}
	s.json(recordHeader, savedHeader{Version: savedVersion, Epoch: q.epoch, Last: q.last, Seq: q.seq})
	for _, id := range slices.Sorted(maps.Keys(q.accounts)) {
		s.account(q.accounts[id])
	}
	s.bytes(recordEnd, nil)
	if s.err != nil {
		return s.err
	}
	return s.w.Flush()
}

func (s *recordWriter) account(a *account) {
	v := savedAccount{ID: a.id, Paused: a.gate.closed, Note: a.gate.note, Limits: map[string]int{}}
	for _, l := range a.limits() {
		v.Limits[l.Group] = l.Max
	}
	if len(a.delegates)+len(a.works)+len(v.Limits) == 0 && !v.Paused {
		return // as if no operation had named it
	}
	s.json(recordAccount, v)
	works := slices.SortedFunc(maps.Values(a.works), func(x, y *work) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, d := range withRemoved(a, works) {
		s.json(recordDelegate, savedDelegate{d.delegateFacts, savedRegistration(d.info)})
	}
	for _, w := range works {
		s.work(w)
	}
}

// withRemoved returns the account's delegates, and the removed ones that its works and
// tasks refer to, in the order of their registration.
func withRemoved(a *account, works []*work) []*delegate {
	all := a.sorted()
	for _, w := range works {
		for r := range w.tasks {
			for _, d := range []*delegate{w.delegate, r.owner} {
				if d != nil && d.Removed {
					all = append(all, d)
				}
			}
		}
	}
	slices.SortFunc(all, byOrder)
	return slices.Compact(all)
}

func (s *recordWriter) work(w *work) {
	v := savedWork{workFacts: w.workFacts, Bodies: w.Variants != nil, Delegate: w.delegate.number(), Tasks: 1 + len(w.more)}
	if r := w.requirement; r != nil {
		v.Types, v.Groups = r.types, r.groups
	}
	s.json(recordWork, v)
	for _, way := range w.Variants {
		s.body(way.Task)
	}
	for r := range w.tasks {
		s.task(r)
	}
}

func (s *recordWriter) task(r *record) {
	v := savedTask{
		taskFacts: r.taskFacts, Owner: r.owner.number(), Stop: r.owner != nil && r.owner.stops[r.ID] == r,
		Body: r.body != nil && !r.shared(), End: r.end,
	}
	if r.end != nil {
		r.end.HasData = r.end.Data != nil
	}
	s.json(recordTask, v)
	if v.Body {
		s.body(r.body)
	}
	if r.end != nil && r.end.HasData {
		s.bytes(recordData, r.end.Data)
	}
}

// shared reports whether the task shares its body with a variant of its work.
func (r *record) shared() bool { return r == r.work.first && r.work.Variants != nil }

// number returns the number by which saved entities refer to the delegate, 0 for nil.
func (d *delegate) number() uint64 {
	if d == nil {
		return 0
	}
	return d.Order
}
