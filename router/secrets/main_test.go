package secrets_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a task of a type through a handler, as the poller does.
func serve(t *testing.T, h task.Handler, typ string) *task.Response {
	t.Helper()
	resp, _ := task.Serve(t.Context(), h, &task.Task{ID: "t1", Type: typ})
	return resp
}

func answer(v string) task.Handler {
	return task.HandlerFunc(func(context.Context, *task.Request[any]) (string, error) { return v, nil })
}
