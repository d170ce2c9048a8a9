package clienttest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/client"
)

// maxWait bounds how long a poll is held, whatever it asks for.
const maxWait = time.Minute

func (s *Server) pollV1(w http.ResponseWriter, r *http.Request) {
	type event struct {
		Account string `json:"accountId"`
		TaskID  string `json:"delegateTaskId"`
		Sync    bool   `json:"sync"`
		Type    string `json:"taskType"`
	}
	answer := struct {
		Events  []event  `json:"delegateTaskEvents"`
		Aborted []string `json:"abortedTaskIds,omitempty"`
	}{Events: []event{}}
	p, ok := s.poll(w, r)
	if !ok {
		return
	}
	for _, e := range p.events {
		answer.Events = append(answer.Events, event{s.Account, e.id, !e.async, e.typ})
	}
	answer.Aborted = p.aborted
	encode(w, answer)
}

func (s *Server) pollV2(w http.ResponseWriter, r *http.Request) {
	type event struct {
		Account    string `json:"accountId"`
		TaskID     string `json:"taskId"`
		RunnerType string `json:"runnerType"`
		Type       string `json:"taskType"`
	}
	answer := struct {
		Events  []event  `json:"delegateRunnerEvents"`
		Aborted []string `json:"abortedTaskIds,omitempty"`
	}{Events: []event{}}
	p, ok := s.poll(w, r)
	if !ok {
		return
	}
	for _, e := range p.events {
		answer.Events = append(answer.Events, event{s.Account, e.id, e.driver, e.typ})
	}
	answer.Aborted = p.aborted
	encode(w, answer)
}

// pending is what a poll finds.
type pending struct {
	events  []listed
	aborted []string
	cursor  uint64
	fresh   bool // there is something that the poll's since has not seen
}

type listed struct {
	id, typ, driver string
	async           bool
}

// poll finds what is pending for the delegate. When the request asks for it, it
// waits until there is something new (SPEC C7). It has answered when ok is false.
func (s *Server) poll(w http.ResponseWriter, r *http.Request) (p pending, ok bool) {
	wait, since := s.wait(r)
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	for waiting := wait > 0; ; {
		s.mu.Lock()
		d := s.delegates[entryOf(r).delegateID]
		news := s.news.wait()
		if d != nil {
			d.Seen = time.Now()
			p = s.look(d, since)
		}
		s.mu.Unlock()
		if d == nil {
			unknownDelegate(w, entryOf(r).delegateID)
			return p, false
		}
		if !waiting || p.fresh {
			break
		}
		select {
		case <-news:
		case <-over:
			waiting = false
		case <-r.Context().Done():
			return p, false
		case <-s.done:
			http.Error(w, ErrClosed.Error(), http.StatusServiceUnavailable)
			return p, false
		}
	}
	if wait > 0 {
		w.Header().Set(client.CursorHeader, strconv.FormatUint(p.cursor, 10))
	}
	return p, true
}

// wait is how long a poll is to be held, 0 for not at all, and what it has seen.
func (s *Server) wait(r *http.Request) (time.Duration, uint64) {
	q := r.URL.Query()
	seconds, err := strconv.ParseUint(q.Get(client.WaitParam), 10, 32)
	if err != nil || s.plain {
		return 0, 0
	}
	since, _ := strconv.ParseUint(q.Get(client.SinceParam), 10, 64) // somebody else's cursor has seen nothing
	return min(time.Duration(seconds)*time.Second, maxWait), since
}

// look lists what is pending for a delegate. The caller holds mu.
func (s *Server) look(d *delegate, since uint64) pending {
	p := pending{cursor: s.seq}
	for _, sub := range s.listed {
		if !sub.isFor(d) {
			continue
		}
		if !sub.pending && sub.owner != d.ID {
			continue
		}
		p.events = append(p.events, listed{sub.ID, sub.task.Type, sub.task.Driver, sub.task.Async})
		p.fresh = p.fresh || sub.seq > since
	}
	if s.plain {
		return p
	}
	for _, sub := range s.aborting {
		if sub.owner == d.ID {
			p.aborted = append(p.aborted, sub.ID)
			p.fresh = p.fresh || sub.seq > since
		}
	}
	return p
}
