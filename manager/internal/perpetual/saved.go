package perpetual

import (
	"fmt"
	"slices"
	"time"
)

// Saved is the saved form of a set, without its tasks.
type Saved struct {
	Last     millis         `json:"last"`
	Seq      uint64         `json:"seq"`
	Sessions []savedSession `json:"sessions,omitempty"`
	Outboxes []*outbox      `json:"outboxes,omitempty"`
}

type savedSession struct {
	Account string   `json:"account"`
	Session *session `json:"session"`
}

// SavedTask is the saved form of a task.
type SavedTask struct {
	Account string `json:"account"`
	*Task
}

// Empty reports whether the set never had a task or a session.
func (s *Set) Empty() bool { return s.seq == 0 && len(s.accounts) == 0 }

// Save returns the state.
func (s *Set) Save() (Saved, []SavedTask) {
	out, tasks := Saved{Last: s.last, Seq: s.seq, Outboxes: sorted(s.outboxes)}, []SavedTask{}
	for _, a := range sorted(s.accounts) {
		for _, n := range sorted(a.sessions) {
			out.Sessions = append(out.Sessions, savedSession{a.id, n})
		}
		for _, t := range sorted(a.tasks) {
			tasks = append(tasks, SavedTask{a.id, t})
		}
	}
	return out, tasks
}

// Load replaces the state by a saved one. Waiting calls look again.
func (s *Set) Load(saved Saved, tasks []SavedTask) error {
	fresh := New(s.facts)
	for _, x := range saved.Sessions {
		if x.Session == nil {
			return fmt.Errorf("a saved session of the account %q is damaged", x.Account)
		}
		x.Session.tasks = map[string]*Task{}
		a := fresh.account(x.Account)
		a.sessions[x.Session.ID] = x.Session
	}
	for _, x := range tasks {
		if x.Task == nil {
			return fmt.Errorf("a saved perpetual task of the account %q is damaged", x.Account)
		}
		a, t := fresh.account(x.Account), x.Task
		a.tasks[t.ID] = t
		a.bytes += t.size()
		if t.Holder == "" {
			if !t.Paused && !t.Deleted {
				a.free[t.ID] = t
			}
			continue
		}
		if t.holder = a.sessions[t.Holder]; t.holder == nil {
			return fmt.Errorf("the perpetual task %q is held by an unknown session", t.ID)
		}
		t.holder.tasks[t.ID] = t
		if t.AskedUntil != 0 {
			a.asked[t.ID] = t
		}
	}
	for _, o := range saved.Outboxes {
		fresh.outboxes[o.Type] = o
		for _, e := range o.Events {
			a := fresh.account(e.Account)
			a.events++
			a.bytes += len(e.Data) + eventSize
		}
	}
	for _, a := range s.accounts {
		for _, n := range a.sessions {
			n.wake()
		}
	}
	s.wakeConsumers()
	fresh.cfg, fresh.last, fresh.seq = s.cfg, saved.Last, saved.Seq
	*s = *fresh
	return nil
}

// View is a task as people see it.
type View struct {
	*Task
	HolderDelegate string
	HolderName     string
	NextAt         time.Time // zero while no session has it
	Waiting        string    // why no session has it
	Events         int       // that wait for a consumer
}

// View returns a task.
func (s *Set) View(account, id string) (View, error) {
	a := s.find(account)
	t, err := a.task(id)
	if err != nil {
		return View{}, err
	}
	return s.view(a, t, s.waiting()[key{account, id}]), nil
}

type key struct{ account, id string }

// waiting counts the events that wait.
func (s *Set) waiting() map[key]int {
	n := map[key]int{}
	for _, o := range s.outboxes {
		for i := range o.Events {
			n[key{o.Events[i].Account, o.Events[i].Task}]++
		}
	}
	return n
}

// Views returns the tasks of an account after an id, at most limit, in the order of their ids.
func (s *Set) Views(account, after string, limit int) []View {
	a, out, waiting := s.find(account), []View{}, s.waiting()
	for _, t := range sorted(a.tasks) {
		if t.ID > after && !t.Deleted && len(out) < limit {
			out = append(out, s.view(a, t, waiting[key{account, t.ID}]))
		}
	}
	return out
}

func (s *Set) view(a *account, t *Task, events int) View {
	shown := *t
	v := View{Task: &shown, Events: events}
	switch {
	case t.holder != nil:
		f, _ := s.facts(a.id, t.holder.Delegate)
		v.HolderDelegate, v.HolderName = t.holder.Delegate, f.Name
		v.NextAt = max(t.next(), t.Since).time()
	case !t.Paused:
		v.Waiting = s.why(a, t)
	}
	return v
}

// why returns why no session has a task.
func (s *Set) why(a *account, t *Task) string {
	if len(a.sessions) == 0 {
		return "no delegate with handlers of perpetual tasks is there"
	}
	if !slices.ContainsFunc(sorted(a.sessions), func(n *session) bool { _, ok := slices.BinarySearch(n.Types, t.Type); return ok }) {
		return fmt.Sprintf("no delegate has a handler of the type %q", t.Type)
	}
	if len(t.Selectors) > 0 {
		return fmt.Sprintf("no delegate that takes work has a handler of the type %q and the tags %q", t.Type, t.Selectors)
	}
	return fmt.Sprintf("no delegate with a handler of the type %q takes work: the account is paused, or they drain or are lost", t.Type)
}

// Stats counts the tasks and events of an account.
func (s *Set) Stats(account string) (held, waiting, paused, failing, events int) {
	a := s.find(account)
	for _, t := range a.tasks {
		switch {
		case t.Deleted:
		case t.Paused:
			paused++
		case t.holder != nil:
			held++
		default:
			waiting++
		}
		if t.Failures > 0 && !t.Deleted {
			failing++
		}
	}
	return held, waiting, paused, failing, a.events
}
