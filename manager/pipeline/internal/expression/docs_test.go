package expression_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// tables returns the rows of the page's tables by their header.
func tables(t *testing.T) map[string][][]string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/expressions.md")
	require.NoError(t, err)
	found := map[string][][]string{}
	header := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = ""
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00"), "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
		}
		switch {
		case header == "":
			header = strings.Join(cells, " ")
		case strings.HasPrefix(cells[0], "---"):
		default:
			found[header] = append(found[header], cells)
		}
	}
	return found
}

// docScope makes the scope of the table with the values of the page.
func docScope(t *testing.T, rows [][]string) names {
	root := names{}
	for _, row := range rows {
		var v any
		require.NoError(t, json.Unmarshal([]byte(strings.Trim(row[1], "`")), &v), row[1])
		if s, ok := v.(string); ok && row[2] == "author" {
			v = author(s)
		}
		parts := strings.Split(strings.Trim(row[0], "`"), ".")
		at := root
		for _, p := range parts[:len(parts)-1] {
			if at[p] == nil {
				at[p] = names{}
			}
			at = at[p].(names)
		}
		at[parts[len(parts)-1]] = v
	}
	return root
}

// Each example of docs/expressions.md has the result that the page gives.
func TestTheExamplesOfThePageHold(t *testing.T) {
	t.Parallel()
	found := tables(t)
	env := &expression.Environment{Scope: docScope(t, found["name value from"]), Time: runTime}
	tested := 0
	for header, m := range map[string]mode{"expression result": evaluate, "text result": render} {
		for _, row := range found[header] {
			tested++
			text := strings.Trim(row[0], "`")
			got, err := eval(t, m, text, env)
			if want, ok := strings.CutPrefix(row[1], "error: "); ok {
				if assert.Error(t, err, "%s gives %v", text, got) {
					assert.Contains(t, err.Error(), want, text)
				}
				continue
			}
			if !assert.NoError(t, err, text) {
				continue
			}
			data, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, strings.Trim(row[1], "`"), string(data), text)
		}
	}
	assert.Greater(t, tested, 140)
}
