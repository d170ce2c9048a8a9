package perpetual

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	wire "github.com/delegate-io/dlite/internal/perpetual"
)

// session is a process of a delegate that has a lease.
type session struct {
	ID       string   `json:"id"`
	Order    uint64   `json:"order"` // its number
	Delegate string   `json:"delegate"`
	Types    []string `json:"types,omitempty"` // sorted
	Leaving  bool     `json:"leaving,omitempty"`
	Due      millis   `json:"due"`            // the end of the lease
	Gone     uint64   `json:"gone,omitempty"` // the number of the last task that it lost without a release
	Seen     string   `json:"seen,omitempty"` // the facts for which its tasks were checked
	tasks    map[string]*Task
	changed  chan struct{} // closed at a change for the session
}

// wake lets a held call look again.
func (n *session) wake() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// change announces a changed task to its holder.
func (s *Set) change(t *Task) {
	if t.holder != nil {
		t.Seq = s.number()
		t.holder.wake()
	}
}

// ask asks the holder for a task. Now is stronger than idle.
func (s *Set) ask(a *account, t *Task, how string) {
	if t.Withdraw == how || t.Withdraw == wire.WithdrawNow {
		return
	}
	t.Withdraw = how
	if how == wire.WithdrawNow {
		t.AskedUntil = s.last.after(s.cfg.Lease)
		a.asked[t.ID] = t
		s.expect(t.AskedUntil)
	}
	s.change(t)
}

// release takes a task from its holder.
func (s *Set) release(a *account, t *Task) {
	delete(t.holder.tasks, t.ID)
	delete(a.asked, t.ID)
	t.holder, t.Holder, t.Withdraw, t.AskedUntil, t.Since, t.Blocked = nil, "", "", 0, 0, ""
	s.updateWaiting(a, t)
}

// revoke takes a task from a holder that did not release it.
func (s *Set) revoke(a *account, t *Task) {
	n := t.holder
	s.release(a, t)
	n.Gone = s.number()
	n.wake()
}

// endSession ends a session. Its tasks wait for another one.
func (s *Set) endSession(a *account, n *session) {
	for _, t := range sorted(n.tasks) {
		s.release(a, t)
	}
	delete(a.sessions, n.ID)
	a.dirty = true
	n.wake()
}

// expect notes a time at which something expires.
func (s *Set) expect(at millis) {
	if s.deadline != 0 {
		s.deadline = min(s.deadline, at)
	}
}

// Reach notes the time of an operation. After a gap all leases begin anew, because
// delegates could not renew them.
func (s *Set) Reach(now time.Time) {
	previous := s.last
	s.last = max(s.last, millis(now.UnixMilli()))
	if s.cfg.Gap <= 0 || s.last <= previous.after(s.cfg.Gap) {
		return
	}
	for _, a := range s.accounts {
		for _, n := range a.sessions {
			n.Due = max(n.Due, s.last.after(s.cfg.Lease))
		}
		for _, t := range a.asked {
			t.AskedUntil = max(t.AskedUntil, s.last.after(s.cfg.Lease))
		}
	}
}

// Tick ends the leases that are over.
func (s *Set) Tick() {
	for _, a := range sorted(s.accounts) {
		for _, n := range sorted(a.sessions) {
			if n.Due <= s.last {
				s.endSession(a, n)
			}
		}
		for _, t := range sorted(a.asked) {
			if t.AskedUntil <= s.last {
				s.revoke(a, t)
			}
		}
		s.dispatch(a)
	}
	s.deadline = 0
}

// NextDeadline returns the time of the next [Set.Tick]. It reports false if there is none.
// While there are sessions, it is at most a third of the gap away.
func (s *Set) NextDeadline() (time.Time, bool) {
	if s.deadline == 0 {
		for _, a := range s.accounts {
			for _, n := range a.sessions {
				s.deadline = minSet(s.deadline, n.Due)
			}
			for _, t := range a.asked {
				s.deadline = minSet(s.deadline, t.AskedUntil)
			}
		}
	}
	if s.deadline == 0 {
		return time.Time{}, false
	}
	at := s.deadline
	if s.cfg.Gap > 0 {
		at = min(at, s.last.after(max(s.cfg.Gap/3, time.Millisecond)))
	}
	return at.time(), true
}

func minSet(a, b millis) millis {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// Observe notes that the queue may know something new about a delegate.
func (s *Set) Observe(account, delegate string) {
	a := s.accounts[account]
	if a == nil {
		return
	}
	for _, n := range sorted(a.sessions) {
		if n.Delegate == delegate {
			s.observe(a, n)
		}
	}
	s.dispatch(a)
}

// ObserveAll does the same for all delegates of an account.
func (s *Set) ObserveAll(account string) {
	a := s.accounts[account]
	if a == nil {
		return
	}
	for _, n := range sorted(a.sessions) {
		s.observe(a, n)
	}
	s.dispatch(a)
}

// observe compares the facts of a session's delegate with those that were seen last. It
// asks for the tasks that the session must not have any more.
func (s *Set) observe(a *account, n *session) {
	f, ok := s.facts(a.id, n.Delegate)
	if !ok {
		s.endSession(a, n) // it has unregistered after its runs
		return
	}
	seen := fmt.Sprint(n.Leaving, f.Takes, "\x00", strings.Join(f.Tags, "\x00"), "\x01", strings.Join(n.Types, "\x00"))
	if seen == n.Seen {
		return
	}
	n.Seen, a.dirty = seen, true
	for _, t := range sorted(n.tasks) {
		if !n.can(&t.Spec, f) {
			s.ask(a, t, wire.WithdrawNow)
		}
	}
}

// can reports whether a session may have a task.
func (n *session) can(p *Spec, f Facts) bool {
	if n.Leaving || !f.Takes {
		return false
	}
	if _, ok := slices.BinarySearch(n.Types, p.Type); !ok {
		return false
	}
	for _, tag := range p.Selectors {
		if _, ok := slices.BinarySearch(f.Tags, tag); !ok {
			return false
		}
	}
	return true
}

// able is a session that takes tasks, for the duration of a decision.
type able struct {
	*session
	facts Facts
	keeps int // tasks that it has and was not asked for
}

// dispatch assigns the tasks that wait, each to the session with the fewest tasks, and
// asks sessions that have too many for some.
func (s *Set) dispatch(a *account) {
	if !a.dirty {
		return
	}
	a.dirty = false
	var sessions []*able
	for _, n := range sorted(a.sessions) {
		if f, ok := s.facts(a.id, n.Delegate); ok && f.Takes && !n.Leaving {
			x := &able{session: n, facts: f}
			for _, t := range n.tasks {
				if t.Withdraw == "" {
					x.keeps++
				}
			}
			sessions = append(sessions, x)
		}
	}
	if len(sessions) == 0 {
		return
	}
	slices.SortFunc(sessions, func(x, y *able) int { return cmp.Compare(x.Order, y.Order) })
	eligible := map[string][]*able{}
	candidates := func(t *Task) []*able {
		k := t.key()
		list, ok := eligible[k]
		if !ok {
			for _, x := range sessions {
				if x.can(&t.Spec, x.facts) {
					list = append(list, x)
				}
			}
			eligible[k] = list
		}
		return list
	}
	for _, t := range sorted(a.free) {
		if list := candidates(t); len(list) > 0 {
			x := slices.MinFunc(list, func(x, y *able) int { return cmp.Compare(x.keeps, y.keeps) })
			x.keeps++
			s.assign(a, t, x.session)
		}
	}
	s.balance(a, sessions, candidates)
}

// assign gives a task to a session.
func (s *Set) assign(a *account, t *Task, n *session) {
	delete(a.free, t.ID)
	t.Token = s.number()
	t.Seq, t.Since, t.Run = t.Token, s.last, 0
	t.holder, t.Holder = n, n.ID
	n.tasks[t.ID] = t
	n.wake()
}

// balance asks sessions that have more than their share for tasks that another session
// can have. The tasks move when their runs have ended.
func (s *Set) balance(a *account, sessions []*able, candidates func(*Task) []*able) {
	total, moving := 0, 0
	for _, x := range sessions {
		total += x.keeps
		moving += len(x.tasks) - x.keeps
	}
	share := (total + len(sessions) - 1) / len(sessions)
	room := -moving
	for _, x := range sessions {
		room += max(share-x.keeps, 0)
	}
	for _, x := range sessions {
		if room <= 0 || x.keeps <= share+share/10+1 {
			continue
		}
		for _, t := range sorted(x.tasks) {
			if room <= 0 || x.keeps <= share {
				break
			}
			other := slices.IndexFunc(candidates(t), func(y *able) bool { return y.keeps < share })
			if t.Withdraw != "" || other < 0 {
				continue
			}
			s.ask(a, t, wire.WithdrawIdle)
			candidates(t)[other].keeps++ // it will come
			x.keeps--
			room--
		}
	}
}

// sessionsOf returns the sessions of a delegate.
func (a *account) sessionsOf(delegate string) (list []*session) {
	for n := range maps.Values(a.sessions) {
		if n.Delegate == delegate {
			list = append(list, n)
		}
	}
	return list
}
