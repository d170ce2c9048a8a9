package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// noImage is the error of a driver that cannot pull an image.
type noImage struct{}

func (noImage) Error() string       { return "no such image" }
func (noImage) FailureKind() string { return stage.FailureImage }

// A manager cannot tell from the message of an error why a step failed.
func TestAnAnswerNamesTheKindOfTheFailureThatTheDriverKnows(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		kind string
	}{
		"an image":             {fmt.Errorf("creating the container: %w", noImage{}), stage.FailureImage},
		"a step that was lost": {driver.ErrLost, stage.FailureDelegateLost},
		"no kind":              {errors.New("anything"), ""},
		"a time-out":           {errors.Join(context.DeadlineExceeded, noImage{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeDriver()
			s := newStages(t, w)
			r := router.New(s.Routes(), router.Standard(zerolog.Nop()))
			run := func(typ, data string) (kind string) {
				resp, _ := task.Serve(t.Context(), r, &task.Task{ID: typ, Type: typ, Data: json.RawMessage(data)})
				var a struct {
					FailureKind string `json:"failure_kind"`
				}
				require.NoError(t, json.Unmarshal(resp.Data, &a), "%s", resp.Data)
				return a.FailureKind
			}
			require.Empty(t, run("local_init", `{"group_id":"tx"}`))
			w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
				return nil, tc.err
			}
			assert.Equal(t, tc.kind, run("local_execute", `{"group_id":"tx","id":"s"}`))
		})
	}
}
