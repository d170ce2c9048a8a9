package clienttest

import (
	"net/http"

	"github.com/delegate-io/dlite/task"
)

func (s *Server) acquireV1(w http.ResponseWriter, r *http.Request) {
	t, ok := s.acquire(w, r)
	switch {
	case !ok:
	case t == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		encode(w, t)
	}
}

// runnerRequest and runnerTask are a task in protocol v2.
type runnerRequest struct {
	Task    *runnerTask   `json:"task"`
	Secrets []*runnerTask `json:"secrets,omitempty"`
	Account string        `json:"account"`
	ID      string        `json:"id"`
}

type runnerTask struct {
	ID      string        `json:"id"`
	Type    string        `json:"type"`
	Data    []byte        `json:"data,omitempty"`
	Driver  string        `json:"driver,omitempty"`
	Config  []byte        `json:"config,omitempty"`
	Forward *task.Forward `json:"forward,omitempty"`
	Logger  *task.Logger  `json:"logger,omitempty"`
}

func newRunnerTask(t *task.Task) *runnerTask {
	return &runnerTask{
		ID: t.ID, Type: t.Type, Data: t.Data, Driver: t.Driver, Config: t.Config, Forward: t.Forward, Logger: t.Logger,
	}
}

func (s *Server) acquireV2(w http.ResponseWriter, r *http.Request) {
	t, ok := s.acquire(w, r)
	if !ok {
		return
	}
	answer := struct {
		Requests []runnerRequest `json:"requests"`
	}{Requests: []runnerRequest{}}
	if t != nil {
		req := runnerRequest{Task: newRunnerTask(t), Account: s.Account, ID: t.ID}
		for _, secret := range t.Secrets {
			req.Secrets = append(req.Secrets, newRunnerTask(secret))
		}
		answer.Requests = append(answer.Requests, req)
	}
	encode(w, answer)
}

// acquire gives the task to the first delegate that asks, as often as that one
// asks until it has answered. t is nil for everybody else. It has answered when
// ok is false.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request) (t *task.Task, ok bool) {
	e := entryOf(r)
	known := s.update(w, e.delegateID, func(d *delegate) { t = s.grant(d, s.tasks[e.taskID]) })
	return t, known
}

// grant decides an acquire; nil is no. The caller holds mu.
func (s *Server) grant(d *delegate, sub *Submission) *task.Task {
	switch {
	case sub == nil || sub.finished || sub.to != "" && sub.to != d.ID:
		return nil
	case sub.pending:
		sub.pending, sub.owner = false, d.ID
		close(sub.acquired)
		if !sub.keepListed {
			s.unlist(sub)
		}
	case sub.owner != d.ID:
		return nil
	}
	sub.acquires++
	return sub.task
}
