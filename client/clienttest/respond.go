package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/delegate-io/dlite/task"
)

// countAttempt counts a request with an answer to a task. The request may still
// fail.
func (s *Server) countAttempt(a *arrival) {
	if a.call != callRespond {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.submissions[a.taskID]; sub != nil {
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
	_ = json.Unmarshal(body.Data, &data) // most data has no error_msg
	s.respond(w, r, Response{
		ID: body.ID, Type: body.Type, Code: body.Code, Error: data.Error, Data: body.Data, Form: "legacy",
	}, task.OK, task.Failed, task.RetryOnOtherDelegate)
}

func (s *Server) respondRunner(w http.ResponseWriter, r *http.Request) {
	s.respondForm(w, r, "runner")
}

func (s *Server) respondV2(w http.ResponseWriter, r *http.Request) { s.respondForm(w, r, "v2") }

func (s *Server) respondForm(w http.ResponseWriter, r *http.Request, form string) {
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

// respond accepts an answer. The form decides the codes that are valid.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, resp Response, codes ...task.Code) {
	a := arrivalOf(r)
	if !slices.Contains(codes, resp.Code) {
		http.Error(w, fmt.Sprintf("the %[2]s form has no code %[1]q", resp.Code, resp.Form), http.StatusBadRequest)
		return
	}
	if resp.ID != "" && resp.ID != a.taskID {
		http.Error(w, fmt.Sprintf("the body answers task %q and the path task %q", resp.ID, a.taskID), http.StatusBadRequest)
		return
	}
	resp.DelegateID = a.delegateID
	var status int
	var problem string
	if !s.update(w, a.delegateID, func(*delegate) { status, problem = s.accept(s.submissions[a.taskID], resp) }) {
		return
	}
	if problem != "" {
		http.Error(w, fmt.Sprintf("task %q %s", a.taskID, problem), status)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// accept records an answer, or returns a status and the reason for refusing it.
// The caller holds mu.
func (s *Server) accept(sub *Submission, resp Response) (status int, problem string) {
	switch {
	case sub == nil:
		return http.StatusNotFound, "is not known"
	case sub.owner == "":
		return http.StatusConflict, "was not acquired"
	}
	resp.Attempts = sub.attempts
	sub.responses = append(sub.responses, resp)
	if !sub.finished && !isRunning(resp.Data) {
		sub.final = len(sub.responses) - 1
		s.finish(sub)
	}
	return http.StatusOK, ""
}

// isRunning reports whether an answer says that the work continues
// (docs/protocol.md 1).
func isRunning(data json.RawMessage) bool {
	var d struct {
		Status string `json:"command_execution_status"`
	}
	return json.Unmarshal(data, &d) == nil && d.Status == "RUNNING"
}
