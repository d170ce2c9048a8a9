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

// The table in docs/kubernetes.md explains errors by their exact text.
func TestErrorsOfTheKubernetesPageExist(t *testing.T) {
	t.Parallel()
	_, after, found := strings.Cut(readPage(t, "docs/kubernetes.md"), "| the error says | what happened |\n|---|---|\n")
	require.True(t, found)
	table, _, _ := strings.Cut(after, "\n\n")
	files, err := filepath.Glob(filepath.Join(root, "driver", "kubernetes", "*.go"))
	require.NoError(t, err)
	var code strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		code.Write(text)
	}
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table, -1)
	require.Greater(t, len(rows), 5)
	for _, m := range rows {
		if strings.HasPrefix(m[1], "OOM") { // a member of the result
			continue
		}
		for part := range strings.SplitSeq(m[1], "...") {
			if part = strings.Trim(part, " ,"); part != "container" {
				assert.Contains(t, code.String(), part)
			}
		}
	}
}
