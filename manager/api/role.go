package api

import (
	"net/http"
	"slices"
	"strings"
)

// Role is what a token or a session may do. A token without a role may do everything, also the calls of delegates.
type Role string

// The roles. Each permits everything that the previous one permits.
const (
	// RoleRead permits reads, and checking a pipeline.
	RoleRead Role = "read"
	// RoleRun also starts, aborts, retries and answers runs, stages and tasks.
	RoleRun Role = "run"
	// RoleOperate permits all calls but the calls of delegates.
	RoleOperate Role = "operate"
)

// order has the roles, the weakest first.
var order = []Role{RoleRead, RoleRun, RoleOperate}

// Valid reports whether there is such a role.
func (r Role) Valid() bool { return slices.Contains(order, r) }

// Below reports whether other permits more than r. An unknown role permits nothing.
func (r Role) Below(other Role) bool { return slices.Index(order, r) < slices.Index(order, other) }

// RoleHeader is the header of answers that names the role of the token. An answer to a token without a role lacks it.
const RoleHeader = "Dlite-Role"

// Permits reports whether the role permits a call. Path is the path of its request.
func (r Role) Permits(method, path string) bool {
	// Delegates change the state of their tasks with every call, also with GET. Webhooks have tokens of another kind.
	for _, others := range []string{"/api/agent/", "/api/executions/", "/api/daemons/", "/api/hooks/"} {
		if strings.Contains(path, others) {
			return false
		}
	}
	if !r.Valid() {
		return false
	}
	if method == http.MethodGet || method == http.MethodHead {
		return true
	}
	_, call, _ := strings.Cut(path, "/api/")
	first, _, _ := strings.Cut(call, "/")
	switch {
	case method == http.MethodPost && call == "lint":
		return true
	case r == RoleRun:
		return method == http.MethodPost && slices.Contains([]string{"runs", "stages", "tasks", "abort"}, first)
	}
	return r == RoleOperate
}

// Needs returns the weakest role that permits a call, and an empty one for the calls of delegates.
func Needs(method, path string) Role {
	for _, r := range order {
		if r.Permits(method, path) {
			return r
		}
	}
	return ""
}
