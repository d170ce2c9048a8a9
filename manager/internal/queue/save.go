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
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) > 0 {
		return errors.New("saving the queue: take its events first")
	}
	s := saver{recordWriter: recordWriter{w: bufio.NewWriterSize(w, 64<<10)}, ended: map[*work]int{}}
	for _, w := range q.finished {
		if w.account.works[w.ID] == w {
			s.ended[w] = len(s.ended) + 1
		}
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

// saver saves a queue.
type saver struct {
	recordWriter
	ended map[*work]int // the order in which works ended, from 1
}

func (s *saver) account(a *account) {
	v := savedAccount{ID: a.id, Paused: a.gate.closed, Limits: map[string]int{}}
	for _, l := range a.limits() {
		v.Limits[l.Group] = l.Max
	}
	if len(a.delegates)+len(a.works)+len(v.Limits) == 0 && !v.Paused {
		return // as if no operation had named it
	}
	s.json(recordAccount, v)
	works := slices.SortedFunc(maps.Values(a.works), func(x, y *work) int { return cmp.Compare(x.seq, y.seq) })
	for _, d := range withRemoved(a, works) {
		s.json(recordDelegate, savedDelegate{
			Order: d.order, ID: d.info.ID, Name: d.info.Name, HostName: d.info.HostName,
			Type: d.info.Type, Runs: d.info.Version, Tags: d.info.Tags, Types: d.info.Types,
			Draining: d.info.Draining, Drained: d.drained, Max: d.max, Lost: d.lost, Removed: d.removed,
			Registered: d.registered, Seen: d.seen, Idle: d.idleSince, Version: d.version, Due: d.due,
		})
	}
	for _, w := range works {
		s.work(w)
	}
}

// withRemoved returns the account's delegates, and the removed ones that its works and
// tasks refer to, in the order of their registration.
func withRemoved(a *account, works []*work) []*delegate {
	removed := map[*delegate]bool{}
	for _, w := range works {
		if w.delegate != nil && w.delegate.removed {
			removed[w.delegate] = true
		}
		for r := range w.tasks {
			if r.owner != nil && r.owner.removed {
				removed[r.owner] = true
			}
		}
	}
	all := slices.AppendSeq(slices.Collect(maps.Values(a.delegates)), maps.Keys(removed))
	slices.SortFunc(all, byOrder)
	return all
}

func (s *saver) work(w *work) {
	v := savedWork{
		ID: w.ID, Seq: w.seq, Stage: w.Stage, Priority: w.Priority,
		QueueTimeout: w.QueueTimeout, RunTimeout: w.RunTimeout, NotBefore: w.notBefore,
		State: w.state, Bodies: w.Variants != nil, Variant: w.variant, Delegate: w.delegate.number(),
		Size: w.size, Was: w.was, Due: w.due, Tasks: 1 + len(w.more), Ended: s.ended[w],
	}
	if w.requirement != nil {
		v.Selectors = *w.Selectors
		for _, way := range w.requirement.variants {
			v.Types = append(v.Types, way.Types)
		}
		v.Groups = w.requirement.groupNames()
	}
	s.json(recordWork, v)
	for _, way := range w.Variants {
		s.body(way.Task)
	}
	for r := range w.tasks {
		s.task(r)
	}
}

func (s *saver) task(r *record) {
	v := savedTask{
		ID: r.id, Seq: r.seq, Owner: r.owner.number(), State: r.state,
		Detached: r.detached, Half: r.half, Stopping: r.stopping, Answered: r.answered, Former: r.former,
		Stop:      r.owner != nil && r.owner.stops[r.id] == r,
		Submitted: r.submitted, Offered: r.offered, Acquired: r.acquired, Ended: r.ended,
		Due: r.due, Body: r.body != nil && !r.shared(),
	}
	if r.end != nil {
		v.End = &savedEnding{
			Kind: r.end.taskType, Outcome: r.end.result.Outcome, Error: r.end.result.Error,
			Code: r.end.result.Code, Data: r.end.result.Data != nil,
		}
	}
	s.json(recordTask, v)
	if v.Body {
		s.body(r.body)
	}
	if v.End != nil && v.End.Data {
		s.bytes(recordData, r.end.result.Data)
	}
}

// shared reports whether the task's body is that of a variant of its work.
func (r *record) shared() bool { return r == r.work.first && r.work.Variants != nil }

// number returns the number by which saved entities refer to the delegate, 0 for nil.
func (d *delegate) number() uint64 {
	if d == nil {
		return 0
	}
	return d.order
}
