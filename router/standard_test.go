package router_test

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// R3, P4: a failure inside of Standard is answered, logged with its code, and
// counted by the middleware outside of it.
func TestStandardPutsTheMiddlewareInOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		inner   router.Middleware
		want    task.Code
	}{
		"handler panics": {handler: func(http.ResponseWriter, *http.Request) { panic("no disk") }, want: task.Failed},
		"inner middleware panics": {inner: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no provider") })
		}, want: task.Failed},
		"inner middleware takes too long": {inner: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, want: task.Timeout},
		"answer is too large": {handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, task.MaxBody+1))
		}, want: task.Failed},
		"success": {handler: func(w http.ResponseWriter, _ *http.Request) { task.WriteJSON(w, 1, 0) }, want: task.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var seen []router.Observation
				more := []router.Middleware{}
				if tc.inner != nil {
					more = append(more, tc.inner)
				}
				r := router.New(router.RouteMap{"a": tc.handler},
					router.WithMiddleware(router.Metrics(func(o router.Observation) { seen = append(seen, o) })),
					router.Standard(zerolog.New(&log), more...))
				resp, _ := task.Serve(t.Context(), r, &task.Task{ID: "t1", Type: "a", Timeout: 1000})
				assert.Equal(t, tc.want, resp.Code, resp.Error)
				if assert.Len(t, seen, 1) {
					assert.Equal(t, tc.want, seen[0].Code)
				}
				all := lines(t, &log)
				assert.Equal(t, "task ended", all[len(all)-1]["message"])
				assert.EqualValues(t, tc.want, all[len(all)-1]["code"])
			})
		})
	}
}

// P4: the poller has bounded the task by its own time-out already, so Deadline adds
// no second timer.
func TestDeadlineKeepsAnEarlierOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before, _ := ctx.Deadline()
		r := router.New(router.RouteMap{"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at, _ := r.Context().Deadline()
			assert.Equal(t, before, at)
			<-r.Context().Done()
			task.WriteError(w, context.Cause(r.Context()))
		})}, router.WithMiddleware(router.Deadline(time.Minute)))
		resp, _ := task.Serve(ctx, r, &task.Task{ID: "t1", Type: "a", Timeout: 2000})
		assert.Equal(t, task.Timeout, resp.Code)
	})
}
