package clienttest

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Call is a kind of call that a delegate makes, in either protocol.
type Call string

// The calls of PROTOCOL 1 and 2.
const (
	// CallAny matches every call; it is the zero value.
	CallAny Call = ""

	CallRegister   Call = "register"
	CallHeartbeat  Call = "heartbeat"
	CallUnregister Call = "unregister"
	CallPoll       Call = "poll"
	CallAcquire    Call = "acquire"
	CallRespond    Call = "respond"
	CallCapacity   Call = "capacity"

	// CallOther is a request that is none of the above.
	CallOther Call = "other"
)

// target is what a request is about. Ids that it does not name are empty.
type target struct {
	call       Call
	delegateID string
	taskID     string
}

// route is a line of the protocols' tables. The names of its path parameters
// are "delegate" and "task".
type route struct {
	call    Call
	method  string
	pattern string
	// delegate is the query parameter that names the delegate, where the path
	// does not.
	delegate string
	serve    func(*Server, http.ResponseWriter, *http.Request)
}

// routes are the calls of both protocols. Those that respond differ in the form
// of their body, see respond.go.
func routes() []route {
	return []route{
		{CallRegister, http.MethodPost, "/api/agent/delegates/register", "", (*Server).register},
		{CallHeartbeat, http.MethodPost, "/api/agent/delegates/heartbeat-with-polling", "", (*Server).heartbeat},
		{CallUnregister, http.MethodPost, "/api/agent/delegates/unregister", "", (*Server).unregister},
		{CallCapacity, http.MethodPost, "/api/agent/delegates/register-delegate-capacity/{delegate}", "", (*Server).capacity},

		{CallPoll, http.MethodGet, "/api/agent/delegates/{delegate}/task-events", "", (*Server).pollV1},
		{CallPoll, http.MethodGet, "/api/executions/{delegate}/runner-events", "", (*Server).pollV2},

		{CallAcquire, http.MethodPut, "/api/agent/v2/delegates/{delegate}/tasks/{task}/acquire", "", (*Server).acquireV1},
		{CallAcquire, http.MethodGet, "/api/executions/{task}/request", "delegateId", (*Server).acquireV2},

		{CallRespond, http.MethodPost, "/api/agent/v2/tasks/{task}/delegates/{delegate}", "", (*Server).respondLegacy},
		{CallRespond, http.MethodPost, "/api/executions/{task}/response", "delegateId", (*Server).respondRunner},
		{CallRespond, http.MethodPost, "/api/executions/{task}/task-response", "runnerId", (*Server).respondV2},
	}
}

// classifier finds what a request is about. It is immutable.
type classifier struct {
	mux    *chi.Mux
	routes map[string]route // by method and pattern
}

func newClassifier() *classifier {
	c := &classifier{mux: chi.NewRouter(), routes: map[string]route{}}
	for _, rt := range routes() {
		c.mux.Method(rt.method, rt.pattern, http.NotFoundHandler())
		c.routes[rt.method+rt.pattern] = rt
	}
	return c
}

// classify looks at the path from its last "/api/" on: a base URL may have a
// prefix (PROTOCOL).
func (c *classifier) classify(r *http.Request) target {
	path := r.URL.EscapedPath()
	at := strings.LastIndex(path, "/api/")
	if at < 0 {
		return target{call: CallOther}
	}
	params := chi.NewRouteContext()
	rt, ok := c.routes[r.Method+c.mux.Find(params, r.Method, path[at:])]
	if !ok {
		return target{call: CallOther}
	}
	t := target{call: rt.call, delegateID: param(params, "delegate"), taskID: param(params, "task")}
	if rt.delegate != "" {
		t.delegateID = r.URL.Query().Get(rt.delegate)
	}
	return t
}

func param(c *chi.Context, name string) string {
	raw := c.URLParam(name)
	if s, err := url.PathUnescape(raw); err == nil {
		return s
	}
	return raw
}
