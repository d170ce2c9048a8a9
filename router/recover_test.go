package router_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// P4: the answer of a handler that panics is FAILED with a reason. The test uses a
// plain writer, because task.Serve would hide a panic that gets through.
func TestRecoverAnswersEveryPanicAsFailed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"text":         {func(http.ResponseWriter, *http.Request) { panic("boom") }, "boom"},
		"error":        {func(http.ResponseWriter, *http.Request) { panic(errors.New("bad disk")) }, "bad disk"},
		"nil":          {func(http.ResponseWriter, *http.Request) { panic(nil) }, "nil"},
		"nil map":      {func(http.ResponseWriter, *http.Request) { nilMap()["a"] = 1 }, "nil map"},
		"ErrAbort":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "abort"},
		"after header": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("late") }, "late"},
		"after half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(task.CodeHeader, string(task.OK))
			_, _ = w.Write([]byte(`{"half":`))
			panic("halfway")
		}, "halfway"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := httptest.NewRecorder()
			r := router.New(router.RouteMap{"a": tc.handler}, router.WithMiddleware(router.Recover(zerolog.Nop())))

			r.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"id":"t1","type":"a"}`)))

			assert.Equal(t, http.StatusInternalServerError, rec.Code)
			assert.Equal(t, string(task.Failed), rec.Header().Get(task.CodeHeader))
			var body struct {
				Message string `json:"error_msg"`
			}
			require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &body), "half an answer was left in front")
			assert.Contains(t, body.Message, tc.reason)
		})
	}
}

// P4: FailNow in a handler under test ends its goroutine.
func TestRecoverAnswersTheEndOfTheGoroutineAsFailed(t *testing.T) {
	t.Parallel()
	h := router.Recover(zerolog.Nop())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		runtime.Goexit()
	}))
	rec, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	}()
	<-done

	assert.Equal(t, http.StatusInternalServerError, rec.Code)
	assert.Contains(t, rec.Body.String(), "ended its goroutine")
}

// R3: the log has the task and the stack.
func TestRecoverLogsTaskAndStackOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := router.New(router.RouteMap{"a": http.HandlerFunc(explode)},
		router.WithMiddleware(router.Recover(zerolog.New(&log))))

	serve(t, r, "a")

	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line), "one line: %s", &log)
	assert.Equal(t, "error", line["level"])
	assert.Equal(t, "t1", line["task"])
	assert.Equal(t, "a", line["task_type"])
	assert.Contains(t, line["error"], "exploded")
	assert.Contains(t, line["stack"], "router_test.explode")
}

func nilMap() map[string]int { return nil }

func explode(http.ResponseWriter, *http.Request) { panic("exploded") }

func TestRecoverPassesAWholeAnswerOn(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := router.Recover(zerolog.New(&log))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("one "))
		_, _ = w.Write([]byte("two"))
		w.WriteHeader(http.StatusInternalServerError) // too late to count
	}))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))

	assert.Equal(t, http.StatusAccepted, rec.Code)
	assert.Equal(t, "one two", rec.Body.String())
	assert.Equal(t, []string{"1", "2"}, rec.Header().Values("X-Two"))
	assert.Empty(t, log.String())
}

// P4: an explicit 204 is a success; writing nothing is not.
func TestRecoverKeepsNoContentApartFromNothing(t *testing.T) {
	t.Parallel()
	r := router.New(router.RouteMap{
		"204":     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		"nothing": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}, router.WithMiddleware(router.Recover(zerolog.Nop())))

	assert.Equal(t, task.OK, serve(t, r, "204").Code)
	nothing := serve(t, r, "nothing")
	assert.Equal(t, task.Failed, nothing.Code)
	assert.Equal(t, "the handler wrote no answer", nothing.Error)

	// A real writer panics on a status of 0.
	assert.NotPanics(t, func() {
		r.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"type":"nothing"}`)))
	})
}

// P4: an answer that was cut at the limit is not taken for a complete one.
func TestRecoverAnswersTooMuchAsFailed(t *testing.T) {
	t.Parallel()
	var wrote error
	r := router.New(router.RouteMap{
		"a": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`"`))
			_, wrote = w.Write(make([]byte, task.MaxBody))
		}),
	}, router.WithMiddleware(router.Recover(zerolog.Nop())))

	resp := serve(t, r, "a")

	assert.Error(t, wrote)
	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, "larger than")
}
