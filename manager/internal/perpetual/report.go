package perpetual

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	wire "github.com/delegate-io/dlite/internal/perpetual"
)

// Known reports whether a session is known with these types, so that a report may leave
// them out.
func (s *Set) Known(account, delegate string, r *wire.Report) bool {
	n := s.find(account).sessions[r.Session]
	return n != nil && n.Delegate == delegate && slices.Equal(n.Types, r.Types)
}

// Report renews the lease of a session, and takes its results and its releases. Empty
// Types come from the last report. It returns the results that it has not taken. It
// fails with [ErrUnknownDelegate] and [ErrFull].
func (s *Set) Report(account, delegate string, r *wire.Report) ([]wire.Refusal, error) {
	if _, ok := s.facts(account, delegate); !ok {
		return nil, ErrUnknownDelegate
	}
	a := s.account(account)
	n := a.sessions[r.Session]
	if n != nil && n.Due <= s.last {
		s.endSession(a, n)
		n = nil
	}
	if n == nil {
		if len(a.sessionsOf(delegate)) >= maxSessions {
			return nil, fmt.Errorf("%w: the delegate has %d sessions: wait for the end of their leases", ErrFull, maxSessions)
		}
		n = &session{ID: r.Session, Order: s.number(), tasks: map[string]*Task{}}
		a.sessions[n.ID], a.dirty = n, true
	}
	n.Delegate, n.Leaving, n.Due = delegate, r.Leaving, s.last.after(s.cfg.Lease)
	s.expect(n.Due)
	if len(r.Types) > 0 {
		n.Types = r.Types
	}
	var refused []wire.Refusal
	for i := range r.Results {
		refused = append(refused, s.result(a, n, &r.Results[i])...)
	}
	for _, c := range r.Released {
		if t := n.tasks[c.ID]; t != nil && t.Token == c.Token {
			s.release(a, t)
		}
	}
	s.observe(a, n)
	s.dispatch(a)
	return refused, nil
}

// result takes a result, or returns why not.
func (s *Set) result(a *account, n *session, r *wire.Result) []wire.Refusal {
	refuse := func(retry bool, format string, args ...any) []wire.Refusal {
		return []wire.Refusal{{Claim: r.Claim, Run: r.Run, Error: fmt.Sprintf(format, args...), Retry: retry}}
	}
	t := a.tasks[r.ID]
	switch {
	case t == nil || t.Deleted:
		return refuse(false, "the task was deleted")
	case t.Token != r.Token || t.holder != n:
		return refuse(false, "the token %d is not current, the task has the token %d now: the lease was lost, and another holder may have the task", r.Token, t.Token)
	case r.Run <= t.Run:
		return nil // it was taken before
	}
	if problem := s.room(a, t, r); problem != "" {
		t.Blocked = problem
		return refuse(true, "%s", problem)
	}
	t.Run, t.Blocked = r.Run, ""
	t.Kicked = max(t.Kicked, min(r.Kick, t.Kick))
	t.Runs += max(r.Runs, 1)
	t.Started = max(s.last-millis(r.StartedAgoMS), 1)
	t.DurationMS = r.DurationMS
	if r.Error != "" {
		t.Failures++
		t.Failed++
		t.Error, t.ErrorAt = r.Error, s.last
		return nil
	}
	t.Failures, t.Succeeded = 0, min(t.Started.after(time.Duration(r.DurationMS)*time.Millisecond), s.last)
	if len(r.State) > 0 {
		a.bytes += len(r.State) - len(t.State)
		t.State = r.State
	}
	for _, e := range r.Events {
		s.publish(a, t, e)
	}
	return nil
}

// room returns why the state and the events of a result cannot be kept now.
func (s *Set) room(a *account, t *Task, r *wire.Result) string {
	more := 0
	if len(r.State) > 0 {
		more = len(r.State) - len(t.State)
	}
	for _, e := range r.Events {
		more += len(e) + eventSize
	}
	switch {
	case len(r.Events) > 0 && a.events+len(r.Events) > maxEvents:
		return fmt.Sprintf("%d events of the account's perpetual tasks wait for their consumer, at most %d may", a.events, maxEvents)
	case more > 0 && a.bytes+more > maxBytes:
		return fmt.Sprintf("configs, states and events of the account's perpetual tasks would have more than %d bytes", maxBytes)
	}
	return ""
}

// maxAnswer bounds the configs and states in an answer.
const maxAnswer = 2 << 20

// Changes returns the changes for a session after a cursor, and a channel that is
// closed at the next change. It reports false if the session has no lease any more.
func (s *Set) Changes(account, id, since string, now time.Time) (*wire.Answer, <-chan struct{}, bool) {
	n := s.find(account).sessions[id]
	if n == nil {
		return nil, nil, false
	}
	after, err := strconv.ParseUint(since, 10, 64)
	full := err != nil || after > s.seq || after < n.Order
	if full {
		after = 0
	}
	out := &wire.Answer{Cursor: strconv.FormatUint(s.seq, 10)}
	var news []*Task
	for _, t := range n.tasks {
		if t.Seq > after {
			news = append(news, t)
		}
	}
	slices.SortFunc(news, bySeq)
	size := 0
	for i, t := range news {
		if size += t.size(); size > maxAnswer && i > 0 {
			out.More, out.Cursor = true, strconv.FormatUint(news[i-1].Seq, 10)
			break
		}
		out.Assigned = append(out.Assigned, t.assignment(account, now))
	}
	if full || n.Gone > after {
		out.HeldGiven = true
		for _, t := range sorted(n.tasks) {
			out.Held = append(out.Held, wire.Claim{ID: t.ID, Token: t.Token})
		}
	}
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return out, n.changed, true
}

func (t *Task) assignment(account string, now time.Time) wire.Assignment {
	return wire.Assignment{
		Claim: wire.Claim{ID: t.ID, Token: t.Token}, Account: account, Type: t.Type, Config: t.Config, State: t.State,
		IntervalMS: t.IntervalMS, Loop: t.Loop, TimeoutMS: t.TimeoutMS,
		DueMS: max(int64(t.next())-now.UnixMilli(), 0), Failures: t.Failures, Kick: t.Kick, Withdraw: t.Withdraw,
	}
}
