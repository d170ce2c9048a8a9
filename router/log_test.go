package router_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func lines(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var out []map[string]any
	for dec := json.NewDecoder(b); dec.More(); {
		var line map[string]any
		require.NoError(t, dec.Decode(&line))
		out = append(out, line)
	}
	return out
}

// L1, R3: the handler's logger and both events of the middleware have the labels
// of the task.
func TestLogNamesTheTaskInTheHandlersLoggerAndAtBothEnds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := router.New(router.RouteMap{"vm_init": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zerolog.Ctx(r.Context()).Warn().Msg("from the handler")
		task.WriteError(w, task.BadRequest(assert.AnError))
	})}, router.WithMiddleware(router.Log(zerolog.New(&out))))

	task.Serve(t.Context(), r, &task.Task{
		ID: "t1", Type: "vm_init", Account: "acme", Data: json.RawMessage(`{"password":"not-a-real-one"}`),
	})

	assert.NotContains(t, out.String(), "not-a-real-one", "the data of a task are not logged")
	got := lines(t, &out)
	require.Len(t, got, 3)
	for i, level := range []string{"debug", "warn", "info"} {
		assert.Equal(t, level, got[i]["level"])
		assert.Equal(t, "t1", got[i]["task"])
		assert.Equal(t, "vm_init", got[i]["task_type"])
		assert.Equal(t, "init", got[i]["kind"])
		assert.Equal(t, "acme", got[i]["account"])
	}
	assert.Equal(t, "FAILED", got[2]["code"])
	assert.EqualValues(t, 400, got[2]["http_status"])
	assert.Contains(t, got[2], "duration")
}

func TestLogOmitsAnAccountThatIsNotThere(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	serve(t, router.New(router.RouteMap{"a": answer("")}, router.WithMiddleware(router.Log(zerolog.New(&out)))), "a")

	got := lines(t, &out)
	require.Len(t, got, 2)
	assert.NotContains(t, got[1], "account")
	assert.Equal(t, "OK", got[1]["code"])
}

// R3: the panic continues to the outer middleware, and the end is logged once.
func TestLogSaysThatATaskPanicked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := router.New(router.RouteMap{"a": http.HandlerFunc(explode)},
		router.WithMiddleware(router.Log(zerolog.New(&out).Level(zerolog.InfoLevel))))

	resp, stack := task.Serve(t.Context(), r, &task.Task{ID: "t1", Type: "a"})

	assert.Equal(t, task.Failed, resp.Code)
	assert.NotEmpty(t, stack)
	got := lines(t, &out)
	require.Len(t, got, 1)
	assert.Equal(t, true, got[0]["panicked"])
	assert.NotContains(t, got[0], "code")
}

// R3: with Recover inside, the code of a task that panicked is logged.
func TestLogOutsideRecoverKnowsTheCode(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := zerolog.New(&out).Level(zerolog.InfoLevel)
	r := router.New(router.RouteMap{"a": http.HandlerFunc(explode)},
		router.WithMiddleware(router.Log(log), router.Recover(zerolog.Nop())))

	serve(t, r, "a")

	got := lines(t, &out)
	require.Len(t, got, 1)
	assert.Equal(t, "FAILED", got[0]["code"])
	assert.EqualValues(t, 500, got[0]["http_status"])
}

// L3: the log of a task that is part of a trace has both ids.
func TestLogNamesTheTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := router.New(router.RouteMap{"x": answer("x")}, router.WithMiddleware(router.Log(zerolog.New(&out))))
	task.Serve(t.Context(), r, &task.Task{
		ID: "t", Type: "x", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	assert.Contains(t, out.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331"`)
}
