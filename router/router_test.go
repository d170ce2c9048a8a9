package router_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// R1.
func TestEachTaskGoesToTheHandlerOfItsType(t *testing.T) {
	t.Parallel()
	r := router.New(router.RouteMap{"a": answer("from a"), "b": answer("from b")})

	assert.JSONEq(t, `"from a"`, string(serve(t, r, "a").Data))
	assert.JSONEq(t, `"from b"`, string(serve(t, r, "b").Data))
}

// P4: a type without a route is answered, and the answer names the type.
func TestTypeWithoutRouteIsAnsweredFailedAndNamesTheType(t *testing.T) {
	t.Parallel()
	resp := serve(t, router.New(router.RouteMap{"a": answer("")}), "who")

	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, `"who"`)
	assert.Contains(t, resp.Error, `"a"`)
}

// P4.
func TestRouterWithoutRoutesAnswersFailed(t *testing.T) {
	t.Parallel()
	assert.Equal(t, task.Failed, serve(t, router.New(nil), "x").Code)
}

// R1: the fallback, which the CGI driver can be, gets the whole task.
func TestFallbackGetsTheWholeTaskOfAnUnknownType(t *testing.T) {
	t.Parallel()
	var body []byte
	var seen *task.Task
	r := router.New(router.RouteMap{"a": answer("")}, router.WithNotFound(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, _ = task.FromContext(r.Context())
			body, _ = io.ReadAll(r.Body)
			task.WriteJSON(w, "fell back", 0)
		})))

	resp := serve(t, r, "other")

	assert.Equal(t, task.OK, resp.Code)
	assert.JSONEq(t, `"fell back"`, string(resp.Data))
	require.NotNil(t, seen)
	assert.Equal(t, "other", seen.Type)
	assert.JSONEq(t, `{"id":"t1","type":"other","data":null}`, string(body))
}

func TestTypesAreSortedAndACopy(t *testing.T) {
	t.Parallel()
	r := router.New(router.RouteMap{"c": answer(""), "a": answer(""), "b": answer("")})

	require.Equal(t, []string{"a", "b", "c"}, r.Types())
	r.Types()[0] = "changed"
	assert.Equal(t, []string{"a", "b", "c"}, r.Types())
}

func TestChangingTheRouteMapAfterNewChangesNothing(t *testing.T) {
	t.Parallel()
	routes := router.RouteMap{"a": answer("first")}
	r := router.New(routes)
	routes["a"], routes["b"] = answer("second"), answer("new")

	assert.JSONEq(t, `"first"`, string(serve(t, r, "a").Data))
	assert.Equal(t, task.Failed, serve(t, r, "b").Code)
}

func TestWrongConfigurationPanicsAtConstruction(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(){
		"empty type":                     func() { router.New(router.RouteMap{"": answer("")}) },
		"nil handler":                    func() { router.New(router.RouteMap{"a": nil}) },
		"nil middleware":                 func() { router.New(nil, router.WithMiddleware(nil)) },
		"middleware that returns nil":    func() { router.New(nil, router.WithMiddleware(func(http.Handler) http.Handler { return nil })) },
		"a route twice":                  func() { router.RouteMap{"a": answer("")}.Merge(router.RouteMap{"a": answer("")}) },
		"a route twice among the others": func() { router.RouteMap{}.Merge(router.RouteMap{"a": nil}, router.RouteMap{"a": nil}) },
		"metrics without a function":     func() { router.Metrics(nil) },
		"a deadline that has passed":     func() { router.Deadline(-1) },
	} {
		assert.Panics(t, make, name)
	}
}

func TestMergeJoinsMapsWithoutChangingThem(t *testing.T) {
	t.Parallel()
	a, b := router.RouteMap{"a": answer("")}, router.RouteMap{"b": answer("")}

	merged := a.Merge(b, nil)

	assert.Equal(t, []string{"a", "b"}, router.New(merged).Types())
	assert.Len(t, a, 1)
	assert.Len(t, b, 1)
	assert.NotNil(t, router.RouteMap(nil).Merge())
}

// R1: middleware runs in the order that WithMiddleware promises, also around the
// fallback.
func TestMiddlewareRunsInOrderAroundEveryHandler(t *testing.T) {
	t.Parallel()
	var trace []string
	mark := func(name string) router.Middleware {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				trace = append(trace, name+">")
				next.ServeHTTP(w, r)
				trace = append(trace, "<"+name)
			})
		}
	}
	r := router.New(router.RouteMap{"a": answer("")},
		router.WithMiddleware(mark("1"), mark("2")), router.WithMiddleware(mark("3")))

	for _, typ := range []string{"a", "without route"} {
		trace = nil
		serve(t, r, typ)
		assert.Equal(t, "1> 2> 3> <3 <2 <1", strings.Join(trace, " "), typ)
	}
}

// R1: middleware may answer by itself, change the task, or swallow the call.
func TestUnusualMiddleware(t *testing.T) {
	t.Parallel()
	refuse := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	}
	retype := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := task.NewContext(r.Context(), &task.Task{ID: "t1", Type: "b"})
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	swallow := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	routes := router.RouteMap{"a": answer("a"), "b": answer("b")}

	refused := serve(t, router.New(routes, router.WithMiddleware(refuse)), "a")
	assert.Equal(t, task.Failed, refused.Code)
	assert.Contains(t, refused.Error, "418")

	// Routing looks at the context's task, so a middleware can change it.
	assert.JSONEq(t, `"b"`, string(serve(t, router.New(routes, router.WithMiddleware(retype)), "a").Data))

	assert.Equal(t, task.Failed, serve(t, router.New(routes, router.WithMiddleware(swallow)), "a").Code)
}

// R1: chi's middleware fits unchanged.
func TestChiMiddlewareWorksUnchanged(t *testing.T) {
	t.Parallel()
	var id string
	r := router.New(router.RouteMap{
		"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id = middleware.GetReqID(r.Context())
			task.WriteJSON(w, "done", 0)
		}),
	}, router.WithMiddleware(
		middleware.RequestID,
		middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: quiet{}, NoColor: true}),
		middleware.Throttle(4),
		middleware.SetHeader("X-Seen", "yes"),
		middleware.AllowContentType("application/json"),
		middleware.NoCache,
	))

	assert.Equal(t, task.OK, serve(t, r, "a").Code)
	assert.NotEmpty(t, id)
}

type quiet struct{}

func (quiet) Print(...any) {}

// R1: the router is an http.Handler, also under a real server and in chi.
func TestRouterServesUnderAnHTTPServer(t *testing.T) {
	t.Parallel()
	mux := chi.NewRouter()
	mux.Mount("/tasks", router.New(router.RouteMap{
		"a": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body) // the body is still there after routing
		}),
	}))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	const body = `{"id":"t1","type":"a","data":{"n":12345678901234567890},"new":true}`
	status, got := post(t, srv.URL+"/tasks", body)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, body, got)

	for name, bad := range map[string]string{"no JSON": "<html>", "empty": "", "no object": "[]"} {
		status, got := post(t, srv.URL+"/tasks", bad)
		assert.Equal(t, http.StatusBadRequest, status, name)
		assert.Contains(t, got, "error_msg", name)
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, b.String()
}

// Under the race detector.
func TestRouterIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	r := router.New(router.RouteMap{"a": answer("a"), "b": answer("b")})
	var wg sync.WaitGroup
	for i := range 16 {
		typ := []string{"a", "b"}[i%2]
		wg.Go(func() {
			for range 50 {
				assert.Equal(t, `"`+typ+`"`, string(serve(t, r, typ).Data))
				assert.Len(t, r.Types(), 2)
			}
		})
	}
	wg.Wait()
}
