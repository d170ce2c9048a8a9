package router_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
)

// P4, R3: the shorter of the task's time-out and the middleware's applies.
func TestDeadlineIsTheShorterOfTaskAndMiddleware(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		most time.Duration
		own  task.Millis
		want time.Duration // 0 is none
	}{
		"task has none":           {time.Minute, 0, time.Minute},
		"task asks for longer":    {time.Minute, 90_000, time.Minute},
		"task asks for shorter":   {time.Minute, 5_000, 5 * time.Second},
		"task asks for the same":  {time.Minute, 60_000, time.Minute},
		"only the task's":         {0, 5_000, 5 * time.Second},
		"neither":                 {0, 0, 0},
		"negative means none":     {time.Minute, -5, time.Minute},
		"too long for a Duration": {time.Minute, 1 << 62, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // time stands still: the deadline is exact
				var left time.Duration
				r := router.New(router.RouteMap{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if at, ok := r.Context().Deadline(); ok {
						left = time.Until(at)
					}
					w.WriteHeader(http.StatusNoContent)
				})}, router.WithMiddleware(router.Deadline(tc.most)))

				resp, _ := task.Serve(t.Context(), r, &task.Task{ID: "t1", Type: "a", Timeout: tc.own})

				assert.Equal(t, task.OK, resp.Code)
				assert.Equal(t, tc.want, left)
			})
		})
	}
}

// P4: a failure after the deadline is answered TIMEOUT, in every form.
func TestFailingAfterTheDeadlineIsTimeout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		late http.HandlerFunc
		want task.Code
	}{
		"returns the context's error": {func(w http.ResponseWriter, r *http.Request) { task.WriteError(w, r.Context().Err()) }, task.Timeout},
		"returns another error":       {func(w http.ResponseWriter, _ *http.Request) { task.WriteError(w, errors.New("killed")) }, task.Timeout},
		"writes 500":                  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, task.Timeout},
		"writes nothing":              {func(http.ResponseWriter, *http.Request) {}, task.Timeout},
		"succeeds all the same":       {func(w http.ResponseWriter, _ *http.Request) { task.WriteJSON(w, 1, 200) }, task.OK},
		"succeeds without a status":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("1")) }, task.OK},
		"asks for another delegate": {func(w http.ResponseWriter, _ *http.Request) {
			task.WriteError(w, task.Errorf(task.RetryOnOtherDelegate, "elsewhere"))
		}, task.RetryOnOtherDelegate},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := router.New(router.RouteMap{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					tc.late(w, r)
				})}, router.WithMiddleware(router.Deadline(time.Second)))

				resp := serve(t, r, "a")

				assert.Equal(t, tc.want, resp.Code, resp.Error)
				if tc.want == task.OK {
					assert.NotEmpty(t, resp.Data)
				} else {
					assert.NotEmpty(t, resp.Error)
				}
			})
		})
	}
}

func TestFailingBeforeTheDeadlineStaysFailed(t *testing.T) {
	t.Parallel()
	h := router.Deadline(time.Hour)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	assert.Equal(t, task.Failed, serve(t, router.New(router.RouteMap{"a": h}), "a").Code)
}

// P4: an abort by the caller is not a time-out, and the context is released at the
// end.
func TestDeadlineKeepsTheCallersCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var inner context.Context
	r := router.New(router.RouteMap{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner = r.Context()
		cancel()
		<-inner.Done()
		task.WriteError(w, inner.Err())
	})}, router.WithMiddleware(router.Deadline(time.Hour)))

	resp, _ := task.Serve(ctx, r, &task.Task{ID: "t1", Type: "a"})

	assert.Equal(t, task.Failed, resp.Code)
	assert.ErrorIs(t, inner.Err(), context.Canceled)
}

func TestDeadlineEndsItsTimerWithTheHandler(t *testing.T) {
	t.Parallel()
	var inner context.Context
	h := router.Deadline(time.Hour)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inner = r.Context() }))

	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))

	assert.ErrorIs(t, inner.Err(), context.Canceled)
}

// R1: http.ResponseController reaches the writer below the middleware.
func TestWriterCanBeFlushedThroughTheMiddleware(t *testing.T) {
	t.Parallel()
	mw := []router.Middleware{router.Deadline(time.Hour), router.Metrics(func(router.Observation) {})}
	var err error
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
		err = http.NewResponseController(w).Flush()
	}))
	for _, m := range mw {
		h = m(h)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))

	assert.NoError(t, err)
	assert.True(t, rec.Flushed)
}
