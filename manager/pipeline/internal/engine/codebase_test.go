package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAManualRunTakesTheCodebaseFromItsBuild(t *testing.T) {
	t.Parallel()
	for build, want := range map[string]map[string]any{
		`{type: branch, spec: {branch: "<+pipeline.variables.line>"}}`: {"build.type": "branch", "branch": "main", "build.spec.branch": "main", "tag": nil},
		`{type: tag, spec: {tag: v1.2}}`:                               {"build.type": "tag", "tag": "v1.2", "branch": nil, "commitSha": nil},
		`{type: PR, spec: {number: 7}}`:                                {"build.type": "PR", "prNumber": "7", "branch": nil},
		`{type: commitSha, spec: {commitSha: 0123456789, branch: b}}`:  {"build.type": "commitSha", "commitSha": "0123456789", "shortCommitSha": "0123456", "branch": "b"},
	} {
		text := `
pipeline:
  identifier: p
  name: p
  variables: [{name: line, type: String, value: main}]
  properties: {ci: {codebase: {connectorRef: c, build: ` + build + `}}}
  stages:
` + indent(stage("build", run("a")), 4)
		p := pipeline(t, text)
		w := newWorldOf(t, p)
		for name, value := range want {
			got, err := codebaseOf(w, name)
			assert.NoError(t, err, "%s: %s", build, name)
			assert.Equal(t, value, got, "%s: %s", build, name)
		}
		given := newWorldOf(t, p, func(r *Run) {
			r.Codebase = Values{"branch": "from a trigger", "build": map[string]any{"type": "Push"}, "commitSha": "fedcba9876543210"}
		})
		for name, value := range map[string]any{"build.type": "Push", "branch": "from a trigger", "tag": nil, "prNumber": nil, "shortCommitSha": "fedcba9"} {
			got, err := codebaseOf(given, name)
			assert.NoError(t, err)
			assert.Equal(t, value, got, "%s: the trigger comes first for %s", build, name)
		}
	}
}

// codebaseOf evaluates a value of the codebase at the start of a run.
func codebaseOf(w *world, name string) (any, error) {
	t := &turn{m: w.m, s: w.begin().state(), changed: map[*Node]bool{}}
	return t.renderText(t.s.Root(), "test", "<+codebase."+name+">", refuseSecrets)
}
