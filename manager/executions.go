package manager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/task"
)

func (m *Manager) acquireV1(w http.ResponseWriter, r *http.Request) {
	id := pathParam(r, "delegate")
	t := m.acquire(w, r, id)
	if t == nil {
		return
	}
	t.Delegate.ID, t.Delegate.InstanceID = id, r.URL.Query().Get("delegateInstanceId")
	writeJSON(w, http.StatusOK, t)
}

func (m *Manager) acquireV2(w http.ResponseWriter, r *http.Request) {
	t := m.acquire(w, r, r.URL.Query().Get("delegateId"))
	if t == nil {
		return
	}
	request, err := requestV2(t, account(r))
	if err != nil {
		writeStatus(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Requests []any `json:"requests"`
	}{[]any{request}})
}

// acquire assigns a task to a delegate and returns a copy of it. If it returns nil,
// it has already answered the request.
func (m *Manager) acquire(w http.ResponseWriter, r *http.Request, delegate string) *task.Task {
	begun := time.Now()
	got, err := m.applyCommand(r.Context(), &command{Account: account(r), Acquire: &acquireCommand{delegate, pathParam(r, "task")}})
	switch {
	case err != nil:
		writeError(w, err)
		return nil
	case got.task == nil:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return m.acquiredTask(r.Context(), got.task, account(r), delegate, begun)
}

// requestV2 returns a task in the form of protocol v2: the payload and the driver's
// configuration are base64, and the secrets and the account stand beside the task.
func requestV2(t *task.Task, account string) (any, error) {
	runner, err := runnerTask(t)
	if err != nil {
		return nil, err
	}
	secrets := make([]map[string]json.RawMessage, 0, len(t.Secrets))
	for _, s := range t.Secrets {
		if s == nil {
			continue
		}
		secret, err := runnerTask(s)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	return struct {
		Task    map[string]json.RawMessage   `json:"task"`
		Secrets []map[string]json.RawMessage `json:"secrets"`
		Account string                       `json:"account"`
		ID      string                       `json:"id"`
	}{runner, secrets, account, t.ID}, nil
}

func runnerTask(t *task.Task) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, fmt.Errorf("encoding task %s: %w", t.ID, err)
	}
	delete(members, "secrets")
	delete(members, "account")
	for _, name := range []string{"data", "config"} {
		inside := members[name]
		delete(members, name)
		if len(inside) == 0 || string(inside) == "null" {
			continue
		}
		if members[name], err = json.Marshal([]byte(inside)); err != nil {
			return nil, err
		}
	}
	return members, nil
}

func (m *Manager) respondLegacy(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Data json.RawMessage `json:"data"`
		Code task.Code       `json:"code"`
	}
	if _, ok := m.readAndDecode(w, r, &in, unbounded); !ok {
		return
	}
	if string(in.Data) == "null" {
		in.Data = nil
	}
	m.respond(w, r, pathParam(r, "delegate"), in.Code, "", in.Data)
}

// respondRunner handles a RunnerTaskResponse. The query names the delegate under a
// different parameter in each form of the path.
func (m *Manager) respondRunner(delegateParam string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Code  task.Code `json:"code"`
			Error string    `json:"error"`
			Data  []byte    `json:"data"`
		}
		if _, ok := m.readAndDecode(w, r, &in, unbounded); !ok {
			return
		}
		data := json.RawMessage(in.Data)
		if len(data) > 0 && !json.Valid(data) {
			data, _ = json.Marshal(string(in.Data)) // a string always encodes
		}
		if string(data) == "null" {
			data = nil
		}
		m.respond(w, r, r.URL.Query().Get(delegateParam), in.Code, in.Error, data)
	}
}

// respond records a delegate's answer to a task. An answer that exceeds the bounds is
// refused. The task then fails with the reason, because a delegate does not repeat a
// refused answer, and the task would otherwise last until its time-out.
func (m *Manager) respond(w http.ResponseWriter, r *http.Request, delegate string, code task.Code, reason string, data json.RawMessage) {
	refused := m.checkAnswer(account(r), pathParam(r, "task"), data)
	if refused != nil {
		code, reason, data = task.Failed, "the manager refused the delegate's answer: "+refused.Error(), nil
	}
	if _, err := m.applyCommand(r.Context(), &command{Account: account(r), Answer: &answerCommand{
		Delegate: delegate, Task: pathParam(r, "task"), Code: code, Reason: reason, Data: data, NeedsStatus: true,
	}}); err != nil {
		writeError(w, err)
		return
	}
	if refused != nil {
		writeError(w, refused)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// checkAnswer checks the data of an answer to a task.
func (m *Manager) checkAnswer(account, id string, data json.RawMessage) error {
	bounds := answerBounds
	if t, err := m.core.queue.Task(account, id); err == nil && isPart(t.Task.Type) { // the manager decodes its outputs and reports
		bounds = submissionBounds
	}
	return firstError(bounds.check(data, "data"), checkOutputs("data", data))
}
