package router

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/delegate-io/dlite/internal/outcome"
	"github.com/delegate-io/dlite/task"
)

// RouteMap maps task types to the handlers that run them. Maps with these types,
// such as the routes of transactions, need no conversion.
type RouteMap map[string]task.Handler

// Merge returns a map with the routes of m and others. It panics if two of them
// have a route for the same type.
func (m RouteMap) Merge(others ...RouteMap) RouteMap {
	out := maps.Clone(m)
	if out == nil {
		out = RouteMap{}
	}
	for _, o := range others {
		for typ, h := range o {
			if _, dup := out[typ]; dup {
				panic(fmt.Sprintf("router: two routes for task type %q", typ))
			}
			out[typ] = h
		}
	}
	return out
}

// Middleware wraps a handler.
type Middleware = func(http.Handler) http.Handler

// Router is the handler of all tasks. It is immutable and safe for concurrent use.
type Router struct {
	handler http.Handler
	types   []string
}

// Option configures a [Router].
type Option func(*config)

type config struct {
	middleware []Middleware
	notFound   task.Handler
}

// WithMiddleware wraps every handler, including the fallback. The first middleware
// is the outermost one. Middleware of a later call goes inside that of an earlier
// call.
func WithMiddleware(mw ...Middleware) Option {
	return func(c *config) { c.middleware = append(c.middleware, mw...) }
}

// WithNotFound sets the handler of tasks whose type has no route. The default
// answers FAILED and names the type.
func WithNotFound(h task.Handler) Option {
	return func(c *config) { c.notFound = h }
}

// New returns a router. It copies routes. It panics on an empty type, a nil
// handler and a nil middleware.
func New(routes RouteMap, opts ...Option) *Router {
	var c config
	for _, o := range opts {
		o(&c)
	}
	routes = maps.Clone(routes)
	for typ, h := range routes {
		if typ == "" {
			panic("router: a route with an empty task type")
		}
		if h == nil {
			panic(fmt.Sprintf("router: the handler of task type %q is nil", typ))
		}
	}
	r := &Router{types: slices.Sorted(maps.Keys(routes))}
	if c.notFound == nil {
		c.notFound = http.HandlerFunc(r.notFound)
	}
	r.handler = dispatch(routes, c.notFound)
	for _, mw := range slices.Backward(c.middleware) {
		if mw == nil {
			panic("router: a nil middleware")
		}
		if r.handler = mw(r.handler); r.handler == nil {
			panic("router: a middleware returned a nil handler")
		}
	}
	return r
}

// ServeHTTP runs the task in the context of the request, or else the one in its
// body.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	if _, ok := task.FromContext(ctx); !ok { // the poller puts it there
		t, err := task.Decode(req, nil)
		if err != nil {
			task.WriteError(w, err)
			return
		}
		ctx = task.NewContext(ctx, t)
	}
	r.handler.ServeHTTP(w, req.WithContext(outcome.Track(ctx)))
}

// Types returns the task types that have a route, sorted. A delegate registers
// with them. The types of the fallback are not known.
func (r *Router) Types() []string { return slices.Clone(r.types) }

func dispatch(routes RouteMap, notFound task.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		t, _ := task.FromContext(req.Context()) // ServeHTTP put it there
		if h, ok := routes[t.Type]; ok {
			h.ServeHTTP(w, req)
			return
		}
		notFound.ServeHTTP(w, req)
	})
}

func (r *Router) notFound(w http.ResponseWriter, req *http.Request) {
	t, _ := task.FromContext(req.Context())
	task.WriteError(w, &task.Error{
		Status: http.StatusNotFound,
		Err:    fmt.Errorf("this delegate has no route for task type %q; it has %q", t.Type, r.types),
	})
}
