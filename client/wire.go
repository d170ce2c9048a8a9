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

// eventsV1 is the answer to a v1 poll.
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

// eventsV2 is the answer to a v2 poll.
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

// decodeEventsV1 adds what a v1 poll lists. An empty body lists nothing.
func decodeEventsV1(p *Pending, body []byte) error {
	if body == nil {
		return nil
	}
	var w eventsV1
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	list(p, w.Events, w.Aborted)
	return nil
}

// decodeEventsV2 is decodeEventsV1 for protocol v2.
func decodeEventsV2(p *Pending, body []byte) error {
	if body == nil {
		return nil
	}
	var w eventsV2
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	list(p, w.Events, w.Aborted)
	return nil
}

// list takes over a poll's answer. An entry without a task id cannot be acquired
// and is left out.
func list[E interface{ event() task.Event }](p *Pending, events []E, aborted []string) {
	p.Events = make([]task.Event, 0, len(events))
	for _, e := range events {
		if ev := e.event(); ev.TaskID != "" {
			p.Events = append(p.Events, ev)
		}
	}
	p.Aborted = aborted
}

// decodeTaskV1 reads an acquired task, nil when the answer holds none.
func decodeTaskV1(body []byte, e task.Event) (*task.Task, error) {
	if isNull(body) {
		return nil, nil //nolint:nilnil // not ours
	}
	t := new(task.Task)
	if err := t.UnmarshalJSON(body); err != nil { // json.Unmarshal would read it twice
		return nil, err
	}
	t.Secrets = slices.DeleteFunc(t.Secrets, func(s *task.Task) bool { return s == nil })
	return identify(t, e), nil
}

// requestV2 is one entry of the answer to a v2 acquire.
type requestV2 struct {
	Task    *task.Task   `json:"task"`
	Secrets []*task.Task `json:"secrets"`
	Account string       `json:"account"`
	ID      string       `json:"id"`
}

// decodeTaskV2 reads an acquired request into a task: its secrets and account
// move into the task, data and config lose their base64.
func decodeTaskV2(body []byte, e task.Event) (*task.Task, error) {
	if isNull(body) {
		return nil, nil //nolint:nilnil // not ours
	}
	var w struct {
		Requests []*requestV2 `json:"requests"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, err
	}
	if len(w.Requests) == 0 {
		return nil, nil //nolint:nilnil // not ours
	}
	r := w.Requests[0]
	for _, other := range w.Requests[1:] { // one is the rule; a list may hold others
		if other != nil && (other.ID == e.TaskID || other.Task != nil && other.Task.ID == e.TaskID) {
			r = other
		}
	}
	if r == nil || r.Task == nil {
		return nil, errors.New("the request holds no task")
	}
	t := r.Task
	if err := unpack(t); err != nil {
		return nil, err
	}
	for i, s := range r.Secrets {
		if s == nil {
			return nil, fmt.Errorf("secret task %d is null", i)
		}
		if err := unpack(s); err != nil {
			return nil, fmt.Errorf("secret task %d: %w", i, err)
		}
	}
	t.Secrets = r.Secrets
	setDefault(&t.Account, r.Account)
	return identify(t, e), nil
}

// unpack decodes a runner task's data and config.
func unpack(t *task.Task) (err error) {
	if t.Data, err = unpackField("data", t.Data); err != nil {
		return err
	}
	t.Config, err = unpackField("config", t.Config)
	return err
}

// unpackField turns a JSON string of base64 into the JSON inside. Its errors
// show nothing of the value.
func unpackField(name string, field json.RawMessage) (json.RawMessage, error) {
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

// identify fills in what a task takes from its event.
func identify(t *task.Task, e task.Event) *task.Task {
	t.ID = e.TaskID
	setDefault(&t.Type, e.TaskType)
	return t
}

func isNull(b []byte) bool { return len(b) == 0 || string(b) == "null" }

// codeLegacy is the code of a TaskResponse (PROTOCOL 1).
func codeLegacy(c task.Code) task.Code {
	switch c {
	case task.OK, task.RetryOnOtherDelegate:
		return c
	default:
		return task.Failed
	}
}

// codeRunner is the code of a RunnerTaskResponse in v1.
func codeRunner(c task.Code) task.Code {
	switch c {
	case task.OK, task.Timeout, task.Unknown:
		return c
	default:
		return task.Failed
	}
}

// codeV2 is the code of a v2 answer.
func codeV2(c task.Code) task.Code {
	if c == task.OK {
		return c
	}
	return task.Failed
}

// late is the data of an answer for a form whose codes do not tell a TIMEOUT
// from a FAILED: then the data says so, as managers understand it (PROTOCOL 1),
// next to what the handler wrote. Data that has a status of its own, and that of
// all other answers, stays as it is.
func late(r *task.Response) []byte {
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
			members[name] = quote(cmp.Or(r.Error, "the task's time-out has passed"))
		}
	}
	b, err := json.Marshal(members)
	if err != nil {
		return r.Data // cannot be: all members were JSON
	}
	return b
}

// statusMember holds the outcome in the data of an answer (PROTOCOL 3).
const statusMember = "command_execution_status"

// encodeLegacy makes a TaskResponse. It has no field for an error, so the reason
// becomes the data when there is none. Data that is not JSON travels as a JSON
// string: the manager gets something that it can show.
func encodeLegacy(t *task.Task, r *task.Response) []byte {
	data := bytes.TrimSpace(late(r))
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

// encodeRunner makes a RunnerTaskResponse; its data is base64 of the bytes as
// they are.
func encodeRunner(t *task.Task, r *task.Response, code task.Code) []byte {
	reason, data := quote(r.Error), []byte(r.Data)
	if code != r.Code {
		data = late(r)
	}
	b := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+len(reason)+len(t.ID)+len(t.Type)+80)
	b = append(append(b, `{"id":`...), quote(t.ID)...)
	b = append(append(b, `,"type":`...), quote(t.Type)...)
	b = append(append(b, `,"code":`...), quote(string(code))...)
	b = append(append(b, `,"error":`...), reason...)
	b = base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), data)
	return append(b, `"}`...)
}

// quote is s as a JSON string.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}
