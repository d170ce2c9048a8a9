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

// runnerRequest is a task in protocol v2, with its secret tasks.
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

// acquire grants the task to the first delegate that asks, and again to the same
// delegate until it answers. t is nil for other delegates. If ok is false,
// acquire has written the answer.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request) (t *task.Task, ok bool) {
	a := arrivalOf(r)
	ok = s.update(w, a.delegateID, func(d *delegate) { t = s.grant(d, s.submissions[a.taskID]) })
	return t, ok
}

// grant returns the task if the delegate may have it, otherwise nil. The caller
// holds mu.
func (s *Server) grant(d *delegate, sub *Submission) *task.Task {
	switch {
	case sub == nil || sub.finished || sub.to != "" && sub.to != d.ID:
		return nil
	case sub.pending:
		sub.pending, sub.owner = false, d.ID
		close(sub.acquired)
		s.unlist(sub)
	case sub.owner != d.ID:
		return nil
	}
	sub.acquires++
	return sub.task
}
