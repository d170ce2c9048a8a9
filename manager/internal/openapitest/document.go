package openapitest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// Document is the description of the API, as far as the checks need it.
type Document struct {
	Paths      map[string]map[string]*Operation // by path and method, in lower case
	Components struct {
		Schemas map[string]*Schema
	}
}

// Operation is a call.
type Operation struct {
	Tags       []string
	Parameters []struct{ Name, In string }
	Responses  map[string]any
}

// Schema is the schema of a value.
type Schema struct {
	Ref        string `json:"$ref"`
	Type       string
	Format     string
	Encoding   string `json:"contentEncoding"`
	Items      *Schema
	Values     json.RawMessage `json:"additionalProperties"`
	Properties map[string]*Schema
	Required   []string
}

// Load returns the description.
func Load(t *testing.T) *Document {
	t.Helper()
	d := &Document{}
	require.NoError(t, json.Unmarshal(api.OpenAPI(), d))
	return d
}

// Calls returns the calls of the servers with the tags, as "GET /api/stages".
func (d *Document) Calls(tags ...string) map[string]*Operation {
	calls := map[string]*Operation{}
	for path, methods := range d.Paths {
		for method, o := range methods {
			if slices.Contains(tags, o.Tags[0]) {
				calls[strings.ToUpper(method)+" "+path] = o
			}
		}
	}
	return calls
}

// CheckRoutes compares the routes of a server with the described calls. Other are prefixes of routes that are described
// elsewhere.
func (d *Document) CheckRoutes(t *testing.T, routes chi.Routes, other []string, tags ...string) {
	t.Helper()
	described := d.Calls(tags...)
	served := map[string]bool{}
	require.NoError(t, chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if slices.ContainsFunc(other, func(prefix string) bool { return strings.HasPrefix(route, prefix) }) {
			return nil
		}
		served[method+" "+route] = true
		assert.Contains(t, described, method+" "+route, "describe the call in openapi_calls_test.go of manager/api, and run go generate ./manager/api")
		return nil
	}))
	for call := range described {
		assert.True(t, served[call], "%s is described, but no route has it", call)
	}
}

// QueryOf returns the names of the parameters in the query of a call, without the account.
func (o *Operation) QueryOf() []string {
	names := []string{}
	for _, p := range o.Parameters {
		if p.In == "query" && !strings.EqualFold(p.Name, "accountId") {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
