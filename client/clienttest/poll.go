package clienttest

import (
	"net/http"
	"strconv"
	"time"
)

// maxWait is the longest time for which the server holds a poll.
const maxWait = time.Minute

// cursorHeader is the header with the cursor of a poll that waits (rule C7).
const cursorHeader = "Dlite-Cursor"

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

// pending is the answer to a poll.
type pending struct {
	events  []listed
	aborted []string
	cursor  uint64
	fresh   bool // an entry is newer than the cursor of the request
}

type listed struct {
	id, typ, driver string
	async           bool
}

// poll lists the pending tasks of the delegate. If the request asks for it, poll
// waits until there is a new entry (rule C7). If ok is false, poll has written
// the answer.
func (s *Server) poll(w http.ResponseWriter, r *http.Request) (p pending, ok bool) {
	wait, since := s.parseWait(r)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waiting := wait > 0; ; {
		s.mu.Lock()
		d := s.delegates[arrivalOf(r).delegateID]
		moved := s.cursorMoved.wait()
		if d != nil {
			d.Seen = time.Now()
			p = s.listPending(d, since)
		}
		s.mu.Unlock()
		if d == nil {
			answerUnknownDelegate(w, arrivalOf(r).delegateID)
			return p, false
		}
		if !waiting || p.fresh {
			break
		}
		select {
		case <-moved:
		case <-timer.C:
			waiting = false
		case <-r.Context().Done():
			return p, false
		case <-s.done:
			http.Error(w, errClosed.Error(), http.StatusServiceUnavailable)
			return p, false
		}
	}
	if wait > 0 {
		w.Header().Set(cursorHeader, strconv.FormatUint(p.cursor, 10))
	}
	return p, true
}

// parseWait returns the time for which the request asks the server to hold the
// poll, and the cursor of the previous poll. Zero means an answer at once.
func (s *Server) parseWait(r *http.Request) (time.Duration, uint64) {
	q := r.URL.Query()
	seconds, err := strconv.ParseUint(q.Get("wait"), 10, 32)
	if err != nil || s.plain {
		return 0, 0
	}
	since, _ := strconv.ParseUint(q.Get("since"), 10, 64) // an unknown cursor counts as 0
	return min(time.Duration(seconds)*time.Second, maxWait), since
}

// listPending lists the pending tasks of a delegate. The caller holds mu.
func (s *Server) listPending(d *delegate, since uint64) pending {
	p := pending{cursor: s.cursor}
	for _, sub := range s.listed {
		if !sub.isFor(d) {
			continue
		}
		if !sub.pending && sub.owner != d.ID {
			continue
		}
		p.events = append(p.events, listed{sub.ID, sub.task.Type, sub.task.Driver, sub.task.Async})
		p.fresh = p.fresh || sub.cursor > since
	}
	if s.plain {
		return p
	}
	for _, sub := range s.aborting {
		if sub.owner == d.ID {
			p.aborted = append(p.aborted, sub.ID)
			p.fresh = p.fresh || sub.cursor > since
		}
	}
	return p
}
