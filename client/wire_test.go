package client

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/delegate-io/dlite/task"
)

// The decoders read input that is not trusted. No input makes them crash,
// and a handler can use every value that they accept.

func FuzzDecodeEvents(f *testing.F) {
	for _, s := range []string{
		`{"delegateTaskEvents":[{"delegateTaskId":"1","sync":true}],"abortedTaskIds":["2"]}`,
		`{"delegateRunnerEvents":[{"taskId":"1"},null],"abortedTaskIds":null}`, `null`, `[]`, `{"delegateTaskEvents":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, decode := range []func(*Pending, []byte) error{decodeEventsV1, decodeEventsV2} {
			var p Pending
			if err := decode(&p, body); err != nil {
				continue
			}
			for _, e := range p.Events {
				if e.TaskID == "" {
					t.Fatal("an event that cannot be acquired")
				}
			}
		}
	})
}

func FuzzDecodeTask(f *testing.F) {
	for _, s := range []string{
		`{"id":"1","type":"A","data":{"a":1},"timeout":5,"future":1}`, `null`, `[]`, `{"data":null,"secrets":[null]}`,
		`{"requests":[{"task":{"id":"1","data":"eyJhIjoxfQ==","config":"e30="},"secrets":[{"data":"MQ=="}],"account":"a"}]}`,
		`{"requests":[null,{"task":null}]}`, `{"requests":[{"task":{"data":"!"}}]}`,
	} {
		f.Add([]byte(s))
	}
	e := task.Event{TaskID: "t", TaskType: "A"}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, decode := range []func([]byte, task.Event) (*task.Task, error){decodeTaskV1, decodeTaskV2} {
			got, err := decode(body, e)
			if err != nil && got != nil {
				t.Fatal("a task came with an error")
			}
			if got == nil {
				continue
			}
			if got.ID != e.TaskID || got.Type == "" {
				t.Fatalf("the task is not named: %q %q", got.ID, got.Type)
			}
			if slices.Contains(got.Secrets, nil) {
				t.Fatal("a secret task is nil")
			}
			out, err := json.Marshal(got)
			if err != nil || !json.Valid(out) {
				t.Fatalf("the task cannot be handed to a handler: %v", err)
			}
		}
	})
}

func FuzzEncodeResponse(f *testing.F) {
	f.Add([]byte(`{"a":1}`), "why", "t")
	f.Add([]byte("text\xff"), "\xff\"", "")
	f.Add([]byte{}, "", "t")
	f.Fuzz(func(t *testing.T, data []byte, reason, id string) {
		tsk, r := &task.Task{ID: id}, &task.Response{Data: data, Error: reason}
		if b := encodeLegacy(tsk, r); !json.Valid(b) {
			t.Fatalf("legacy: %q", b)
		}
		r.Code = task.Timeout
		var sent struct {
			Data struct {
				Status any `json:"command_execution_status"`
			}
		}
		if err := json.Unmarshal(encodeLegacy(tsk, r), &sent); err != nil || sent.Data.Status == nil || sent.Data.Status == "" {
			t.Fatalf("legacy time-out: %v, %v", err, sent)
		}
		r.Code = task.OK
		var back struct{ Data []byte }
		if err := json.Unmarshal(encodeRunner(tsk, r, task.OK), &back); err != nil || string(back.Data) != string(data) {
			t.Fatalf("runner: %v, %q", err, back.Data)
		}
	})
}

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("é\xff\x00\n"))
	f.Add([]byte(`{"error_msg":7,"message":"m"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range messageOf(body) {
			if r < ' ' || r == 0x7f {
				t.Fatalf("a control character: %q", messageOf(body))
			}
		}
	})
}
