package expression

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page has an example of each method, and names each function and operator.
func TestThePageNamesEachMethodFunctionAndOperator(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/expressions.md")
	require.NoError(t, err)
	for _, methods := range []map[string]method{textMethods, listMethods, mapMethods} {
		for name := range methods {
			assert.Contains(t, string(page), "."+name+"(")
		}
	}
	for unit := range units {
		assert.Contains(t, string(page), "`"+unit+"`")
	}
	for name := range functors {
		assert.Contains(t, string(page), name)
	}
	for _, level := range levels[1:] {
		for operator := range level.operators {
			assert.Contains(t, string(page), "`"+operator+"`")
		}
	}
}
