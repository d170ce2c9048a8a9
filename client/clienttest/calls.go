package clienttest

import (
	"net/http"
	"net/url"
	"strings"
)

// Call is a kind of request that a delegate sends, in either protocol.
type Call string

// The calls of both protocols (docs/protocol.md 1 and 2).
const (
	// CallAny is the zero value and matches every call.
	CallAny Call = ""

	CallRegister   Call = "register"
	CallHeartbeat  Call = "heartbeat"
	CallUnregister Call = "unregister"
	CallPoll       Call = "poll"
	CallAcquire    Call = "acquire"
	CallRespond    Call = "respond"
	CallCapacity   Call = "capacity"

	// CallOther is a request that is no call of the protocols.
	CallOther Call = "other"
)

// CallOf returns the call that a request is, and the ids that its path or query
// names. The other ids are empty. The path may have a prefix.
func CallOf(r *http.Request) (call Call, delegateID, taskID string) {
	path := r.URL.EscapedPath()
	start := strings.LastIndex(path, "/api/")
	if start < 0 {
		return CallOther, "", ""
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
	return CallOther, "", ""
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
	call    Call
	method  string
	pattern string
	// delegateParam is the query parameter that names the delegate if the path
	// does not.
	delegateParam string
	serve         func(*Server, http.ResponseWriter, *http.Request)
}

// routes returns the calls of both protocols. The routes of CallRespond differ in
// the form of their body, see respond.go.
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
