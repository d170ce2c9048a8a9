package openapitest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Statuses returns the statuses from 400 on that the calls of the tags have in the description.
func (d *Document) Statuses(tags ...string) []int {
	found := map[int]bool{}
	for _, o := range d.Calls(tags...) {
		for text := range o.Responses {
			if status, err := strconv.Atoi(text); err == nil && status >= http.StatusBadRequest {
				found[status] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// UsedStatuses returns the statuses from 400 on that the source files in a directory name, without 405.
func UsedStatuses(t *testing.T, dir string) []int {
	t.Helper()
	found := map[int]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if ok && strings.HasPrefix(s.Sel.Name, "Status") {
				if status := statusNamed(s.Sel.Name); status >= http.StatusBadRequest && status != http.StatusMethodNotAllowed {
					found[status] = true
				}
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// statusNamed returns the status of a constant of net/http, or 0.
func statusNamed(constant string) int {
	for status := 400; status < 600; status++ {
		name := regexp.MustCompile(`[^A-Za-z]`).ReplaceAllString(http.StatusText(status), "")
		if name != "" && strings.EqualFold("Status"+name, constant) {
			return status
		}
	}
	return 0
}

// Answers makes each described call of a handler with unknown ids, and checks that the status of the answer is
// described. Prepare may change the request. It returns the answers by their calls.
func (d *Document) Answers(t *testing.T, h http.Handler, query string, prepare func(*http.Request), tags ...string) map[string]*httptest.ResponseRecorder {
	t.Helper()
	answers := map[string]*httptest.ResponseRecorder{}
	for call, o := range d.Calls(tags...) {
		method, path, _ := strings.Cut(call, " ")
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "unknown")
		r := httptest.NewRequestWithContext(t.Context(), method, path+query, strings.NewReader("{}"))
		if prepare != nil {
			prepare(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Contains(t, o.Responses, strconv.Itoa(w.Code), "%s: %s", call, w.Body)
		answers[call] = w
	}
	return answers
}

// CheckParameters makes each described call with an unknown parameter. The refusal lists the parameters that the call
// knows: the ones in the description.
func (d *Document) CheckParameters(t *testing.T, h http.Handler, query string, list *regexp.Regexp, prepare func(*http.Request), tags ...string) {
	t.Helper()
	calls := d.Calls(tags...)
	for call, w := range d.Answers(t, h, query+"&zzzzzzzzzzzz=1", prepare, tags...) {
		if !assert.Equal(t, http.StatusBadRequest, w.Code, "%s accepts an unknown parameter", call) {
			continue
		}
		m := list.FindStringSubmatch(w.Body.String())
		if !assert.NotNil(t, m, "%s: %s", call, w.Body) {
			continue
		}
		known := regexp.MustCompile(`\w+`).FindAllString(m[1], -1)
		known = slices.DeleteFunc(known, func(name string) bool { return slices.Contains([]string{"accountId", "and", "or"}, name) })
		slices.Sort(known)
		assert.Equal(t, calls[call].QueryOf(), known, call)
	}
}
