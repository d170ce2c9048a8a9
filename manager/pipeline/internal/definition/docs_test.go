package definition

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDocumentationNamesEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "pipelines.md"))
	require.NoError(t, err)
	words := map[string]bool{}
	word := regexp.MustCompile(`[A-Za-z_0-9-]+`)
	for i, part := range strings.Split(string(text), "```") {
		code := []string{part} // a block
		if i%2 == 0 {
			code = regexp.MustCompile("`[^`\n]+`").FindAllString(part, -1)
		}
		for _, c := range code {
			for _, w := range word.FindAllString(c, -1) {
				words[w] = true
			}
		}
	}
	for _, o := range known().objects {
		for _, k := range o.keys {
			require.True(t, words[k.name], "docs/pipelines.md does not name the key %s of %s", k.name, o.name)
			for _, word := range k.words {
				require.True(t, words[word], "docs/pipelines.md does not name the word %s of %s", word, k.name)
			}
		}
	}
	for name := range known().variants["step types"] {
		require.True(t, words[name], "docs/pipelines.md does not name the step type %s", name)
	}
}
