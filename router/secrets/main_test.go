package secrets_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func answer(v string) task.Handler {
	return task.HandlerFunc(func(context.Context, *task.Request[any]) (string, error) { return v, nil })
}
