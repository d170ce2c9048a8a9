package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/benchmarks.md says how to repeat each figure.
func TestBenchmarksOfThePageExist(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/benchmarks.md")
	found := regexp.MustCompile("`(Benchmark\\w+)` in `(\\./[^`]+)`").FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		files, err := filepath.Glob(filepath.Join(root, m[2], "*_test.go"))
		require.NoError(t, err)
		exists := false
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			exists = exists || strings.Contains(string(text), "func "+m[1]+"(")
		}
		assert.True(t, exists, "docs/benchmarks.md names %s, which is not in %s", m[1], m[2])
	}
}
