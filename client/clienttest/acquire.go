package clienttest

import (
	"encoding/json"
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
	s.mu.Lock()
	defer s.mu.Unlock()
	d, sub := s.delegates[e.delegateID], s.tasks[e.taskID]
	switch {
	case d == nil:
		unknownDelegate(w, e.delegateID)
		return nil, false
	case sub == nil || sub.finished || sub.to != "" && sub.to != d.ID:
		return nil, true
	case sub.pending:
		sub.pending, sub.owner = false, d.ID
		close(sub.acquired)
		if !sub.keepListed {
			s.unlist(sub)
		}
	case sub.owner != d.ID:
		return nil, true
	}
	sub.acquires++
	return sub.task, true
}

// arrived counts an answer to a task, whatever becomes of it.
func (s *Server) arrived(e *entry) {
	if e.call != CallRespond {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.tasks[e.taskID]; sub != nil {
		sub.attempts++
	}
}

func (s *Server) respondLegacy(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID   string          `json:"id"`
		Type string          `json:"type"`
		Code task.Code       `json:"code"`
		Data json.RawMessage `json:"data"`
	}
	if !decode(w, r, &body) {
		return
	}
	var data struct {
		Error string `json:"error_msg"`
	}
	_ = json.Unmarshal(body.Data, &data) // most data is no error
	s.respond(w, r, Response{
		ID: body.ID, Type: body.Type, Code: body.Code, Error: data.Error, Data: body.Data, Form: FormLegacy,
	}, task.OK, task.Failed, task.RetryOnOtherDelegate)
}

func (s *Server) respondRunner(w http.ResponseWriter, r *http.Request) { s.respondForm(w, r, FormRunner) }

func (s *Server) respondV2(w http.ResponseWriter, r *http.Request) { s.respondForm(w, r, FormV2) }

func (s *Server) respondForm(w http.ResponseWriter, r *http.Request, form Form) {
	var body struct {
		ID    string    `json:"id"`
		Type  string    `json:"type"`
		Code  task.Code `json:"code"`
		Error string    `json:"error"`
		Data  []byte    `json:"data"`
	}
	if !decode(w, r, &body) {
		return
	}
	s.respond(w, r, Response{
		ID: body.ID, Type: body.Type, Code: body.Code, Error: body.Error, Data: body.Data, Form: form,
	}, task.OK, task.Failed, task.Timeout, task.Unknown)
}

// respond takes an answer in. Its code has to be one that its form has.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, resp Response, codes ...task.Code) {
	e := entryOf(r)
	if !contains(codes, resp.Code) {
		http.Error(w, "code "+string(resp.Code)+" is none that this form has", http.StatusBadRequest)
		return
	}
	if resp.ID != "" && resp.ID != e.taskID {
		http.Error(w, "the body answers task "+resp.ID+", the path task "+e.taskID, http.StatusBadRequest)
		return
	}
	resp.DelegateID = e.delegateID
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.tasks[e.taskID]
	switch {
	case s.delegates[e.delegateID] == nil:
		unknownDelegate(w, e.delegateID)
		return
	case sub == nil:
		http.Error(w, "task "+e.taskID+" is not known", http.StatusNotFound)
		return
	case sub.owner == "":
		http.Error(w, "task "+e.taskID+" was acquired by nobody", http.StatusConflict)
		return
	}
	resp.Attempts = sub.attempts
	sub.responses = append(sub.responses, resp)
	if !sub.finished && !running(resp.Data) {
		sub.final = len(sub.responses) - 1
		s.finish(sub)
	}
	w.WriteHeader(http.StatusOK)
}

func contains(codes []task.Code, c task.Code) bool {
	for _, code := range codes {
		if code == c {
			return true
		}
	}
	return false
}

// running is whether an answer only says that the work goes on (PROTOCOL 1).
func running(data json.RawMessage) bool {
	var d struct {
		Status string `json:"command_execution_status"`
	}
	return json.Unmarshal(data, &d) == nil && d.Status == "RUNNING"
}
