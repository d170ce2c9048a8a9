package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/delegate-io/dlite/task"
)

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

func (s *Server) respondRunner(w http.ResponseWriter, r *http.Request) {
	s.respondForm(w, r, FormRunner)
}

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
	if !slices.Contains(codes, resp.Code) {
		http.Error(w, fmt.Sprintf("code %q is none that the %s form has", resp.Code, resp.Form), http.StatusBadRequest)
		return
	}
	if resp.ID != "" && resp.ID != e.taskID {
		http.Error(w, fmt.Sprintf("the body answers task %q, the path %q", resp.ID, e.taskID), http.StatusBadRequest)
		return
	}
	resp.DelegateID = e.delegateID
	var status int
	var problem string
	if !s.update(w, e.delegateID, func(*delegate) { status, problem = s.take(s.tasks[e.taskID], resp) }) {
		return
	}
	if problem != "" {
		http.Error(w, fmt.Sprintf("task %q %s", e.taskID, problem), status)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// take keeps an answer, or says why not. The caller holds mu.
func (s *Server) take(sub *Submission, resp Response) (status int, problem string) {
	switch {
	case sub == nil:
		return http.StatusNotFound, "is not known"
	case sub.owner == "":
		return http.StatusConflict, "was acquired by nobody"
	}
	resp.Attempts = sub.attempts
	sub.responses = append(sub.responses, resp)
	if !sub.finished && !running(resp.Data) {
		sub.final = len(sub.responses) - 1
		s.finish(sub)
	}
	return http.StatusOK, ""
}

// running is whether an answer only says that the work goes on (PROTOCOL 1).
func running(data json.RawMessage) bool {
	var d struct {
		Status string `json:"command_execution_status"`
	}
	return json.Unmarshal(data, &d) == nil && d.Status == "RUNNING"
}
