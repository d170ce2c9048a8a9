package clienttest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// The calls of both protocols, see [CallOf].
const (
	callRegister   = "register"
	callHeartbeat  = "heartbeat"
	callUnregister = "unregister"
	callPoll       = "poll"
	callAcquire    = "acquire"
	callRespond    = "respond"
	callCapacity   = "capacity"
	callReconcile  = "reconcile"
	callDaemons    = "daemon-tasks"
	callPerpetual  = "perpetual"
	callOther      = "other"
)

// CallOf returns the call that a request is, and the ids that its path or query names.
// The other ids are empty. The path may have a prefix. The calls of both protocols
// (docs/protocol.md 1 and 2) are register, heartbeat, unregister, poll, acquire, respond,
// capacity, reconcile and daemon-tasks. Perpetual is the call of our extension for perpetual tasks. Any other
// request is the call other.
func CallOf(r *http.Request) (call, delegateID, taskID string) {
	path := r.URL.EscapedPath()
	start := strings.LastIndex(path, "/api/")
	if start < 0 {
		return callOther, "", ""
	}
	segments := strings.Split(path[start:], "/")
	for _, rt := range routes() {
		params, ok := matchPattern(rt.pattern, segments)
		if !ok || rt.method != r.Method {
			continue
		}
		delegateID = params["{delegate}"]
		if rt.delegateParam != "" {
			delegateID = r.URL.Query().Get(rt.delegateParam)
		}
		return rt.call, delegateID, params["{task}"]
	}
	return callOther, "", ""
}

// matchPattern compares the segments of an escaped path with a pattern, and
// returns the unescaped values of the pattern's parameters.
func matchPattern(pattern string, segments []string) (map[string]string, bool) {
	params := map[string]string{}
	want := strings.Split(pattern, "/")
	if len(want) != len(segments) {
		return nil, false
	}
	for i, w := range want {
		switch {
		case strings.HasPrefix(w, "{") && segments[i] != "":
			value, err := url.PathUnescape(segments[i])
			if err != nil {
				value = segments[i]
			}
			params[w] = value
		case w != segments[i]:
			return nil, false
		}
	}
	return params, true
}

// route is a line of the protocols' tables. The path parameters of the pattern
// are "delegate" and "task".
type route struct {
	call    string
	method  string
	pattern string
	// delegateParam is the query parameter that names the delegate if the path
	// does not.
	delegateParam string
	serve         func(*Server, http.ResponseWriter, *http.Request)
}

// routes returns the calls of both protocols. The routes of callRespond differ in
// the form of their body, see respond.go.
func routes() []route {
	return []route{
		{callRegister, http.MethodPost, "/api/agent/delegates/register", "", (*Server).register},
		{callHeartbeat, http.MethodPost, "/api/agent/delegates/heartbeat-with-polling", "", (*Server).heartbeat},
		{callUnregister, http.MethodPost, "/api/agent/delegates/unregister", "", (*Server).unregister},
		{callCapacity, http.MethodPost, "/api/agent/delegates/register-delegate-capacity/{delegate}", "", (*Server).capacity},

		{callPerpetual, http.MethodPost, "/api/agent/perpetual/{delegate}/reconcile", "", (*Server).reconcilePerpetual},

		{callPoll, http.MethodGet, "/api/agent/delegates/{delegate}/task-events", "", (*Server).pollV1},
		{callPoll, http.MethodGet, "/api/executions/{delegate}/runner-events", "", (*Server).pollV2},

		{callAcquire, http.MethodPut, "/api/agent/v2/delegates/{delegate}/tasks/{task}/acquire", "", (*Server).acquireV1},
		{callAcquire, http.MethodGet, "/api/executions/{task}/request", "delegateId", (*Server).acquireV2},

		{callRespond, http.MethodPost, "/api/agent/v2/tasks/{task}/delegates/{delegate}", "", (*Server).respondLegacy},
		{callRespond, http.MethodPost, "/api/executions/{task}/response", "delegateId", (*Server).respondRunner},
		{callRespond, http.MethodPost, "/api/executions/{task}/task-response", "runnerId", (*Server).respondV2},

		{callReconcile, http.MethodPost, "/api/daemons/{delegate}/reconcile", "", (*Server).reconcile},
		{callDaemons, http.MethodPost, "/api/daemons/{delegate}/tasks", "", (*Server).daemonTasks},
	}
}

// checkCalls panics if a name is not one of the calls: a count of it would be 0 for ever.
func checkCalls(calls ...string) {
	for _, c := range calls {
		switch c {
		case callRegister, callHeartbeat, callUnregister, callPoll, callAcquire, callRespond, callCapacity, callReconcile, callDaemons, callPerpetual, callOther:
		default:
			panic(fmt.Sprintf("clienttest: no call has the name %q", c))
		}
	}
}
