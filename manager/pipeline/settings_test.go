package pipeline

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
)

func TestTheSettingsOfTheDocumentationAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/pipelines.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n## Settings\n")
	require.True(t, found)
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, found = strings.Cut(text, "```")
	require.True(t, found)
	settings, err := ReadSettings([]byte(text))
	require.NoError(t, err)
	require.Len(t, settings.Connectors, 6)
	_, err = steps.New(settings)
	require.NoError(t, err)
	_, err = ReadSettings([]byte("conectors: {}"))
	require.ErrorContains(t, err, "conectors")
}
