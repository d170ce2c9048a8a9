package client

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/delegate-io/dlite/task"
)

// eventsV1 is the answer to a poll of protocol v1.
type eventsV1 struct {
	Events  []eventV1 `json:"delegateTaskEvents"`
	Aborted []string  `json:"abortedTaskIds"`
}

type eventV1 struct {
	AccountID string `json:"accountId"`
	TaskID    string `json:"delegateTaskId"`
	Sync      bool   `json:"sync"`
	TaskType  string `json:"taskType"`
}

func (e eventV1) event() task.Event {
	return task.Event{TaskID: e.TaskID, TaskType: e.TaskType, Account: e.AccountID, Sync: e.Sync}
}

// eventsV2 is the answer to a poll of protocol v2.
type eventsV2 struct {
	Events  []eventV2 `json:"delegateRunnerEvents"`
	Aborted []string  `json:"abortedTaskIds"`
}

type eventV2 struct {
	AccountID  string `json:"accountId"`
	TaskID     string `json:"taskId"`
	RunnerType string `json:"runnerType"`
	TaskType   string `json:"taskType"`
}

func (e eventV2) event() task.Event {
	return task.Event{TaskID: e.TaskID, TaskType: e.TaskType, Account: e.AccountID, RunnerType: e.RunnerType}
}

// decodeEventsV1 decodes the answer to a v1 poll into p. An empty body has no
// events.
func decodeEventsV1(p *Pending, body []byte) error {
	if body == nil {
		return nil
	}
	var w eventsV1
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	setPending(p, w.Events, w.Aborted)
	return nil
}

// decodeEventsV2 decodes the answer to a v2 poll.
func decodeEventsV2(p *Pending, body []byte) error {
	if body == nil {
		return nil
	}
	var w eventsV2
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	setPending(p, w.Events, w.Aborted)
	return nil
}

// setPending fills p. It omits entries without a task id, because they cannot be
// acquired.
func setPending[E interface{ event() task.Event }](p *Pending, events []E, aborted []string) {
	p.Events = make([]task.Event, 0, len(events))
	for _, e := range events {
		if ev := e.event(); ev.TaskID != "" {
			p.Events = append(p.Events, ev)
		}
	}
	p.Aborted = aborted
}

// decodeTaskV1 decodes an acquired task, nil if the answer has none.
func decodeTaskV1(body []byte, e task.Event) (*task.Task, error) {
	if isNull(body) {
		return nil, nil //nolint:nilnil // another delegate has the task
	}
	t := new(task.Task)
	if err := t.UnmarshalJSON(body); err != nil { // json.Unmarshal would scan it twice
		return nil, err
	}
	t.Secrets = slices.DeleteFunc(t.Secrets, func(s *task.Task) bool { return s == nil })
	return setIdentity(t, e), nil
}

// requestV2 is one entry of the answer to a v2 acquire.
type requestV2 struct {
	Task    *task.Task   `json:"task"`
	Secrets []*task.Task `json:"secrets"`
	Account string       `json:"account"`
	ID      string       `json:"id"`
}

// decodeTaskV2 decodes an acquired request into a task. It moves the secrets and
// the account of the request into the task, and decodes data and config from
// base64.
func decodeTaskV2(body []byte, e task.Event) (*task.Task, error) {
	if isNull(body) {
		return nil, nil //nolint:nilnil // another delegate has the task
	}
	var w struct {
		Requests []*requestV2 `json:"requests"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, err
	}
	if len(w.Requests) == 0 {
		return nil, nil //nolint:nilnil // another delegate has the task
	}
	r := w.Requests[0]
	for _, other := range w.Requests[1:] { // usually there is one; others belong to other tasks
		if other != nil && (other.ID == e.TaskID || other.Task != nil && other.Task.ID == e.TaskID) {
			r = other
		}
	}
	if r == nil || r.Task == nil {
		return nil, errors.New("the request has no task")
	}
	t := r.Task
	if err := decodePayload(t); err != nil {
		return nil, err
	}
	if err := decodeSecrets(r.Secrets); err != nil {
		return nil, err
	}
	t.Secrets = r.Secrets
	setDefault(&t.Account, r.Account)
	return setIdentity(t, e), nil
}

// decodePayload decodes the data and the config of a v2 task.
func decodePayload(t *task.Task) (err error) {
	if t.Data, err = decodeBase64JSON("data", t.Data); err != nil {
		return err
	}
	t.Config, err = decodeBase64JSON("config", t.Config)
	return err
}

// decodeBase64JSON decodes a JSON string of base64 into the enclosed JSON. Its
// errors do not quote the value.
func decodeBase64JSON(name string, field json.RawMessage) (json.RawMessage, error) {
	if isNull(field) {
		return nil, nil
	}
	var b []byte
	if err := json.Unmarshal(field, &b); err != nil {
		return nil, fmt.Errorf("the task's %s is not base64", name)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, nil
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("the task's %s is not base64 of JSON", name)
	}
	return b, nil
}

// setIdentity sets the id of the task, and its type if it has none, from the event.
func setIdentity(t *task.Task, e task.Event) *task.Task {
	t.ID = e.TaskID
	setDefault(&t.Type, e.TaskType)
	return t
}

func isNull(b []byte) bool { return len(b) == 0 || string(b) == "null" }

// codeLegacy returns the code for a TaskResponse (docs/protocol.md 1).
func codeLegacy(c task.Code) task.Code {
	switch c {
	case task.OK, task.RetryOnOtherDelegate:
		return c
	default:
		return task.Failed
	}
}

// codeRunner returns the code for a RunnerTaskResponse of v1.
func codeRunner(c task.Code) task.Code {
	switch c {
	case task.OK, task.Timeout, task.Unknown:
		return c
	default:
		return task.Failed
	}
}

// codeV2 returns the code for an answer of v2.
func codeV2(c task.Code) task.Code {
	if c == task.OK {
		return c
	}
	return task.Failed
}

// dataWithTimeout returns the data of an answer for a form without the code
// TIMEOUT. For a TIMEOUT it adds the status to the data of the handler, in the form
// that managers understand (docs/protocol.md 1). Data that has a status, and the
// data of other answers, stays unchanged.
func dataWithTimeout(r *task.Response) []byte {
	if r.Code != task.Timeout {
		return r.Data
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(r.Data, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	if status := members[statusMember]; !isNull(status) && string(status) != `""` {
		return r.Data
	}
	members[statusMember] = quote(string(task.Timeout))
	members["code"] = []byte(strconv.Itoa(http.StatusGatewayTimeout))
	for _, name := range []string{"error_message", "error_msg"} {
		if isNull(members[name]) {
			members[name] = quote(cmp.Or(r.Error, "the task timed out"))
		}
	}
	b, err := json.Marshal(members)
	if err != nil {
		return r.Data // cannot happen: all members are JSON
	}
	return b
}

// statusMember is the member of the data with the status (docs/protocol.md 3).
const statusMember = "command_execution_status"

// encodeLegacy encodes a TaskResponse. The form has no member for an error, so the
// reason becomes the data if there is no data. Data that is not JSON travels as a
// JSON string, which the manager can show.
func encodeLegacy(t *task.Task, r *task.Response) []byte {
	data := bytes.TrimSpace(dataWithTimeout(r))
	switch {
	case len(data) == 0 && r.Error != "":
		data = append(append([]byte(`{"error_msg":`), quote(r.Error)...), '}')
	case len(data) == 0:
		data = []byte("null")
	case !json.Valid(data):
		data = quote(string(r.Data))
	case !utf8.Valid(data):
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	b := make([]byte, 0, len(data)+len(t.ID)+len(t.Type)+64)
	b = append(append(b, `{"id":`...), quote(t.ID)...)
	b = append(append(b, `,"data":`...), data...)
	b = append(append(b, `,"type":`...), quote(t.Type)...)
	b = append(append(b, `,"code":`...), quote(string(codeLegacy(r.Code)))...)
	return append(b, '}')
}

// encodeRunner encodes a RunnerTaskResponse. Its data is the base64 of the
// unchanged bytes.
func encodeRunner(t *task.Task, r *task.Response, code task.Code) []byte {
	reason, data := quote(r.Error), []byte(r.Data)
	if code != r.Code {
		data = dataWithTimeout(r)
	}
	b := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+len(reason)+len(t.ID)+len(t.Type)+80)
	b = append(append(b, `{"id":`...), quote(t.ID)...)
	b = append(append(b, `,"type":`...), quote(t.Type)...)
	b = append(append(b, `,"code":`...), quote(string(code))...)
	b = append(append(b, `,"error":`...), reason...)
	b = base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), data)
	return append(b, `"}`...)
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // encoding a string never fails
	return b
}
