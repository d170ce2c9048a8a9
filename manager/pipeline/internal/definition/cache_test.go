package definition

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cached returns the outline of a pipeline whose stage has this caching.
func cached(t *testing.T, caching string, types ...string) (string, Problems) {
	t.Helper()
	p, problems := Read(Source{Name: "p.yaml", Text: []byte(`pipeline:
  identifier: p
  name: p
  variables:
    - {name: c, type: String, value: "true"}
  stages:
    - stage:
        identifier: s
        name: s
        type: CI
        spec:
          caching: ` + caching + `
          execution:
            steps:
              - step: {identifier: a, name: a, type: Run, spec: {command: "true"}}
`)}, Options{StepTypes: types})
	require.NotNil(t, p, problems)
	var b strings.Builder
	outline(&b, p)
	return b.String(), problems
}

func TestAStageWithCachingGetsAStepAtItsBeginAndAtItsEnd(t *testing.T) {
	t.Parallel()
	const (
		restore = "  RestoreStageCache restore_stage_cache within 1h on [AllErrors] Ignore \n"
		run     = "  Run a\n"
		save    = "  SaveStageCache save_stage_cache within 1h on [AllErrors] Ignore \n"
	)
	for caching, want := range map[string]string{
		`{enabled: true}`:                         restore + run + save,
		`{enabled: true, key: k, paths: [x, /y]}`: restore + run + save,
		`{key: k}`:                           restore + run + save,
		`{enabled: true, policy: pull}`:      restore + run,
		`{enabled: true, policy: Push}`:      run + save,
		`{enabled: true, policy: pull-push}`: restore + run + save,
		`{enabled: false, key: k}`:           run,
		`{}`:                                 run,
	} {
		got, problems := cached(t, caching, RestoreStageCache, SaveStageCache)
		assert.Equal(t, "stage s\n"+want, got, caching)
		assert.Empty(t, problems, caching)
	}
	got, _ := cached(t, `{enabled: <+pipeline.variables.c>}`, RestoreStageCache, SaveStageCache)
	assert.Equal(t, 2, strings.Count(got, `when Success "<+pipeline.variables.c>"`), got)
}

func TestCachingNeedsABucket(t *testing.T) {
	t.Parallel()
	got, problems := cached(t, `{enabled: true}`)
	assert.Equal(t, "stage s\n  Run a\n", got)
	require.Len(t, problems, 1)
	assert.Equal(t, "p.yaml:12:11: warning: caching is ignored: the settings of the pipeline service have no cache: add cache: {bucket: NAME} to them [ignored-key]", problems[0].Error())
	_, problems = cached(t, `{enabled: false}`)
	assert.Empty(t, problems)
	_, problems = cached(t, `{enabled: true, path: [x]}`, SaveStageCache)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].Error(), "did you mean paths?")
}
