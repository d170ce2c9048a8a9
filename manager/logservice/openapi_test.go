package logservice

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/openapitest"
)

func TestTheDescriptionIsThatOfTheLogService(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Authorize: func(a Access) bool { return a.Token == "fake" }})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	d := openapitest.Load(t)
	d.CheckRoutes(t, s.routes().(chi.Routes), nil, "logs", "upload")
	d.CheckRequest(t, "LogLine", logger.Line{})
	assert.Equal(t, openapitest.UsedStatuses(t, "."), d.Statuses("logs", "upload"))

	for call, w := range d.Answers(t, s, "?accountID=acme&key=a", nil, "logs") {
		assert.Equal(t, http.StatusUnauthorized, w.Code, call)
	}
	authorize := func(r *http.Request) { r.Header.Set("X-Harness-Token", "fake") }
	for call, w := range d.Answers(t, s, "?accountID=acme", authorize, "logs") {
		assert.Equal(t, http.StatusBadRequest, w.Code, call)
	}
	d.Answers(t, s, "?accountID=acme&key=a", authorize, "logs")
	d.Answers(t, s, "", nil, "upload")

	described := map[string]bool{}
	for _, o := range d.Calls("logs", "upload") {
		for _, name := range o.QueryOf() {
			described[name] = true
		}
	}
	described["accountID"] = true
	assert.Equal(t, queryMembers(t), slices.Sorted(maps.Keys(described)), "members of queries that the source reads")
}

// queryMembers returns the members of queries that the source reads: the log service ignores others, because foreign
// writers may send them.
func queryMembers(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if matched, _ := filepath.Match("*_test.go", name); matched {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			literal, isText := call.Args[0].(*ast.BasicLit)
			if ok && isText && method.Sel.Name == "Get" && isQuery(method.X) {
				member, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				found[member] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// isQuery reports whether an expression is a query: a call of Query, or the variable q.
func isQuery(x ast.Expr) bool {
	if name, ok := x.(*ast.Ident); ok {
		return name.Name == "q"
	}
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Query"
}
