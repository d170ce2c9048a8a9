package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// foreignCitation matches citations of pages that the repository does not have. Rules are
// cited by their ids (docs/rules.md), and the wire formats by docs/protocol.md.
var foreignCitation = regexp.MustCompile(`\bSPEC [A-Z]\d?\b|\bPROTOCOL \d|\bPIPELINE \d|\bPITFALLS\b|\.\./shared/`)

// A reader finds every page that code, tests, scripts or pages cite.
func TestOnlyPagesOfTheRepositoryAreCited(t *testing.T) {
	t.Parallel()
	kinds := []string{".go", ".md", ".sh", ".lua", ".yaml"}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir // .git and .cache
		case d.IsDir() || !slices.Contains(kinds, filepath.Ext(file)) || d.Name() == "citations_test.go":
			return nil
		}
		text, err := os.ReadFile(file)
		assert.Empty(t, foreignCitation.FindAllString(string(text), -1), file)
		return err
	})
	require.NoError(t, err)
}
