package expression_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// names is a scope of fixed values.
type names map[string]any

func (n names) Lookup(name string) (any, bool) {
	v, ok := n[name]
	return v, ok
}

func (n names) Names() []string {
	var all []string
	for name := range n {
		all = append(all, name)
	}
	return all
}

func (n names) Member(name string) (any, bool) { return n.Lookup(name) }

var runTime = time.Date(2026, 11, 22, 20, 15, 4, 0, time.UTC)

func TestTheExamplesOfTheTwoModes(t *testing.T) {
	t.Parallel()
	scope := names{
		"a": 5, "b": 12, "f": "abc", "g": "def", "h": "key", "company": "harness",
		"v5":        "1-2-3",
		"variables": map[string]any{"key": "found"},
		"pipeline":  map[string]any{"variables": map[string]any{"x": expression.Text{Value: "p,q"}}},
	}
	for _, test := range []struct {
		text, mode string
		want       any
	}{
		{`<+a> + <+b>`, "render", "5 + 12"},
		{`<+a> + <+b>`, "evaluate", int64(17)},
		{`<+<+a> + <+b>>`, "render", int64(17)},
		{`<+f> + <+g> = <+<+f> + " + " + <+g>>`, "render", "abc + def = abc + def"},
		{`<+ <+a>==5?<+f>:<+g> >`, "render", "abc"},
		{`<+ <+a>==5?<+f>:<+g> >`, "evaluate", "abc"},
		{`<+variables.<+h>>`, "render", "found"},
		{`<+variables.<+h>>`, "evaluate", "found"},
		{`<+<+v5>.replace('-','')>`, "render", "123"},
		{`<+<+v5>.replace('-','')>`, "evaluate", "123"},
		{`<+company.concat('india')>`, "render", "harnessindia"},
		{`<+company.concat('india')>`, "evaluate", "harnessindia"},
		{`archit-<+company>`, "evaluate", "archit-harness"},
		{`<+"<+f>".concat("d")>`, "render", "abcd"},
		{`<+pipeline.variables.x>.split(',')`, "evaluate", []any{"p", "q"}},
	} {
		env := &expression.Environment{Scope: scope, Time: runTime}
		var got any
		if test.mode == "render" {
			tmpl, err := expression.Parse(test.text)
			require.NoError(t, err, test.text)
			got, err = tmpl.Render(env)
			require.NoError(t, err, test.text)
		} else {
			c, err := expression.ParseCondition(test.text)
			require.NoError(t, err, test.text)
			got, err = c.Evaluate(env)
			require.NoError(t, err, test.text)
		}
		assert.Equal(t, test.want, got, "%s: %s", test.mode, test.text)
	}
}
