package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/task"
)

// hello is a handler as net/http knows them.
type hello struct{}

func (hello) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Name string }
	if _, err := task.Decode(r, &in); err != nil {
		task.WriteBadRequest(w, err)
		return
	}
	task.WriteJSON(w, map[string]string{"greeting": "hello " + in.Name}, http.StatusOK)
}

func Example() {
	for _, data := range []string{`{"name":"world"}`, `"no object"`} {
		resp, _ := task.Serve(context.Background(), hello{}, &task.Task{ID: "1", Type: "hello", Data: json.RawMessage(data)})
		fmt.Println(resp.Code, string(resp.Data))
	}
	// Output:
	// OK {"greeting":"hello world"}
	// FAILED {"error_msg":"decoding the data of task 1 (hello): json: cannot unmarshal string into Go value of type struct { Name string }","code":400}
}

// The same without JSON and HTTP.
func ExampleHandlerFunc() {
	type in struct{ Name string }
	type out struct{ Greeting string }
	h := task.HandlerFunc(func(_ context.Context, req *task.Request[in]) (out, error) {
		if req.Data.Name == "" {
			return out{}, task.BadRequest(errors.New("a name is missing"))
		}
		return out{"hello " + req.Data.Name + ", this is task " + req.Task.ID}, nil
	})

	for _, data := range []string{`{"name":"world"}`, `{}`} {
		resp, _ := task.Serve(context.Background(), h, &task.Task{ID: "1", Type: "hello", Data: json.RawMessage(data)})
		fmt.Println(resp.Code, string(resp.Data))
	}
	// Output:
	// OK {"Greeting":"hello world, this is task 1"}
	// FAILED {"error_msg":"a name is missing","code":400}
}

// An error decides how the task ends.
func ExampleErrorf() {
	for _, err := range []error{
		errors.New("no disk"),
		task.Errorf(task.RetryOnOtherDelegate, "this machine has no GPU"),
		fmt.Errorf("cloning: %w", context.DeadlineExceeded),
	} {
		h := task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return nil, err })
		resp, _ := task.Serve(context.Background(), h, &task.Task{ID: "1", Type: "hello"})
		fmt.Println(resp.Code, resp.Error)
	}
	// Output:
	// FAILED no disk
	// RETRY_ON_OTHER_DELEGATE this machine has no GPU
	// TIMEOUT cloning: context deadline exceeded
}

// A task keeps members that this version does not know.
func ExampleTask() {
	var t task.Task
	if err := json.Unmarshal([]byte(`{"id":"1","type":"hello","data":null,"priority":12345678901234567890}`), &t); err != nil {
		fmt.Println(err)
		return
	}
	t.Type = "greet"
	b, err := json.Marshal(&t)
	fmt.Println(string(b), err)
	// Output: {"id":"1","type":"greet","data":null,"priority":12345678901234567890} <nil>
}
