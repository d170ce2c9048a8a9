package definition

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// file reads a file of testdata.
func file(t testing.TB, name string) Source {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return Source{Name: filepath.Base(name), Text: text}
}

func TestReadReturnsTheStagesAndStepsOfALinearPipeline(t *testing.T) {
	t.Parallel()
	p, problems := Read(file(t, "pipelines/linear.yaml"), Options{})
	require.Empty(t, problems)
	require.Equal(t, "linear", p.Identifier)
	require.Equal(t, "1.2", p.Variables[0].Value.Value)
	require.Equal(t, map[string]string{"team": "core", "empty": ""}, p.Tags)
	steps := p.Stages[0].Stage.Steps
	require.Len(t, steps, 2)
	require.Equal(t, "Sh", steps[0].Step.Spec.Get("shell").Text())
	require.True(t, steps[0].Step.Spec.Get("command").Block)
	require.Equal(t, Position{File: "linear.yaml", Line: 23, Column: 19}, steps[0].Step.Position)
}
