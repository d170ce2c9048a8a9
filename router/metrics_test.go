package router_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// L3, R3: every way in which a task can end makes one observation.
func TestMetricsObservesEveryTaskOnce(t *testing.T) {
	t.Parallel()
	routes := router.RouteMap{
		"good":         answer("x"),
		"vm_cleanup":   answer("x"),
		"empty":        http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }),
		"implicit 200": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }),
		"nothing":      http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"early hints": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
		}),
		"error": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
			return nil, errors.New("no")
		}),
		"elsewhere": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
			return nil, task.Errorf(task.RetryOnOtherDelegate, "full")
		}),
		"panic": http.HandlerFunc(explode),
		"panic after 200": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic("no")
		}),
		"goexit": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }),
	}
	for _, want := range []router.Observation{
		{Type: "good", Code: task.OK, Status: 200},
		{Type: "vm_cleanup", Kind: "cleanup", Code: task.OK, Status: 200},
		{Type: "empty", Code: task.OK, Status: 204},
		{Type: "implicit 200", Code: task.OK, Status: 200},
		{Type: "early hints", Code: task.OK, Status: 202},
		{Type: "nothing", Code: task.Failed},
		{Type: "error", Code: task.Failed, Status: 500},
		{Type: "elsewhere", Code: task.RetryOnOtherDelegate, Status: 500},
		{Type: "panic", Code: task.Failed, Panicked: true},
		{Type: "panic after 200", Code: task.Failed, Status: 200, Panicked: true},
		{Type: "goexit", Code: task.Failed, Panicked: true},
		{Type: "without route", Code: task.Failed, Status: 404},
	} {
		t.Run(want.Type, func(t *testing.T) {
			t.Parallel()
			var got []router.Observation
			r := router.New(routes, router.WithMiddleware(router.Metrics(func(o router.Observation) { got = append(got, o) })))

			resp := serve(t, r, want.Type)

			require.Len(t, got, 1)
			assert.Equal(t, want.Code, resp.Code, "the metric has the code of the answer")
			got[0].Duration = 0
			want.Kind = cmp.Or(want.Kind, "standalone")
			assert.Equal(t, want, got[0])
		})
	}
}

func TestMetricsMeasuresTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got router.Observation
		r := router.New(router.RouteMap{"a": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		})}, router.WithMiddleware(router.Metrics(func(o router.Observation) { got = o }), router.Deadline(3*time.Second)))

		serve(t, r, "a")

		assert.Equal(t, 3*time.Second, got.Duration)
		assert.Equal(t, task.Timeout, got.Code)
	})
}

// L3: tasks run in parallel, and so does the function.
func TestMetricsCountsParallelTasks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	count := map[task.Code]int{}
	r := router.New(router.RouteMap{"good": answer("x"), "panic": http.HandlerFunc(explode)},
		router.WithMiddleware(router.Metrics(func(o router.Observation) {
			mu.Lock()
			defer mu.Unlock()
			count[o.Code]++
		}), router.Recover(zerolog.Nop())))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				serve(t, r, []string{"good", "panic"}[i%2])
			}
		})
	}
	wg.Wait()

	assert.Equal(t, map[task.Code]int{task.OK: 100, task.Failed: 100}, count)
}
