package steps_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

// Scripts and settings of existing pipelines name files of the workspace by /harness.
func TestTheWorkspaceOfContainersIsAlsoAtItsUsualPath(t *testing.T) {
	t.Parallel()
	workspace := &stage.VolumeMount{Name: "dlite-workspace", Path: "/harness"}
	open := func(o *engine.Opening) (stage.InitRequest, steps.Target) {
		request, target, err := newTable(t).Stage(steps.Info{Stage: "s"}, o)
		require.NoError(t, err)
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		return init, target
	}
	init, target := open(&engine.Opening{Clone: true, Repository: spec(t, `{"connectorRef":"git","repoName":"web","cloneDirectory":"/harness/src"}`)})
	assert.Equal(t, []*stage.VolumeMount{workspace}, target.Mounts)
	assert.Empty(t, init.Volumes)
	assert.Equal(t, "src", init.Clone.Dir)

	step := stepOf(t, target, "Run", `{"image":"tool:1","command":"make","envVariables":{"DRONE_WORKSPACE":"/own"},"reports":{"type":"JUnit","spec":{"paths":["/harness/out/*.xml","b/*.xml"]}}}`)
	assert.Equal(t, []*stage.VolumeMount{workspace}, step.Volumes)
	assert.Equal(t, map[string]string{"HARNESS_WORKSPACE": "/harness", "DRONE_WORKSPACE": "/own"}, step.Environment)
	assert.Equal(t, []string{"out/*.xml", "b/*.xml"}, step.TestReport.Junit.Paths)
	host := stepOf(t, target, "Run", `{"command":"make"}`)
	assert.Empty(t, host.Environment, "the driver knows the path on the machine")
	clone := stepOf(t, target, "GitClone", `{"connectorRef":"git","repoName":"web","cloneDirectory":"/harness/src"}`)
	assert.Equal(t, []*stage.VolumeMount{workspace}, clone.Volumes)
	assert.Equal(t, "src", clone.Environment["DRONE_WORKSPACE"])

	_, target = open(&engine.Opening{SharedPaths: []any{"/harness"}})
	assert.Equal(t, []*stage.VolumeMount{{Name: "shared-0", Path: "/harness"}}, target.Mounts, "a path of the stage comes first")
	_, target = open(&engine.Opening{Platform: map[string]any{"os": "Windows"}})
	assert.Empty(t, target.Mounts)
}

func TestNullItemsOfListsAreLeftOut(t *testing.T) {
	t.Parallel()
	step := stepOf(t, steps.Target{}, "BuildAndPushDockerRegistry", `{"connectorRef":"hub","repo":"web","tags":["latest",null]}`)
	assert.Equal(t, "latest", step.Environment["PLUGIN_TAGS"])
	step = stepOf(t, steps.Target{}, "Plugin", `{"image":"tool:1","settings":{"tags":["latest",null]}}`)
	assert.Equal(t, "latest", step.Environment["PLUGIN_TAGS"])
}

func TestTheCloneOfAManualRunGivesTheVariablesOfTheCodebase(t *testing.T) {
	t.Parallel()
	environment := func(build string, codebase map[string]any) map[string]string {
		o := &engine.Opening{Clone: true, Repository: spec(t, `{"connectorRef":"git","repoName":"web","build":`+build+`}`)}
		request, _, err := newTable(t).Stage(steps.Info{Stage: "s", Codebase: codebase}, o)
		require.NoError(t, err)
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		return init.Envs
	}
	env := environment(`{"type":"branch","spec":{"branch":"main"}}`, map[string]any{"repoUrl": "https://git.example/acme/web.git"})
	assert.Equal(t, []string{"main", "push", "web"}, []string{env["DRONE_BRANCH"], env["DRONE_BUILD_EVENT"], env["DRONE_REPO_NAME"]})
	env = environment(`{"type":"tag","spec":{"tag":"v1"}}`, nil)
	assert.Equal(t, []string{"v1", "tag", ""}, []string{env["DRONE_TAG"], env["DRONE_BUILD_EVENT"], env["DRONE_BRANCH"]})
	env = environment(`{"type":"PR","spec":{"number":7}}`, nil)
	assert.Equal(t, []string{"7", "pull_request"}, []string{env["DRONE_PULL_REQUEST"], env["DRONE_BUILD_EVENT"]})
	env = environment(`{"type":"branch","spec":{"branch":"main"}}`, map[string]any{"tag": "v2", "build": map[string]any{"type": "tag"}})
	assert.Equal(t, []string{"v2", "tag", ""}, []string{env["DRONE_TAG"], env["DRONE_BUILD_EVENT"], env["DRONE_BRANCH"]}, "a trigger comes first")
}

func TestTheCloneOfAPullRequestIsItsMerge(t *testing.T) {
	t.Parallel()
	clone := func(repository string, codebase map[string]any) *stage.Clone {
		o := &engine.Opening{Clone: true, Repository: spec(t, repository)}
		request, _, err := newTable(t).Stage(steps.Info{Stage: "s", Codebase: codebase}, o)
		require.NoError(t, err)
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		return init.Clone
	}
	const build = `"build":{"type":"PR","spec":{"number":"7"}}`
	trigger := map[string]any{"commitSha": "0123456789012345678901234567890123456789", "targetBranch": "main", "commitRef": "refs/merge-requests/7/head"}
	c := clone(`{"connectorRef":"git","repoName":"web",`+build+`}`, trigger)
	assert.Equal(t, []any{"refs/merge-requests/7/head", "main", trigger["commitSha"], true}, []any{c.Ref, c.Branch, c.Commit, c.Merge})
	c = clone(`{"connectorRef":"git","repoName":"web","prCloneStrategy":"SourceBranch",`+build+`}`, trigger)
	assert.Equal(t, []any{"", trigger["commitSha"], false}, []any{c.Branch, c.Commit, c.Merge})
	c = clone(`{"connectorRef":"git","repoName":"web",`+build+`}`, nil)
	assert.Equal(t, []any{"refs/pull/7/head", "", false}, []any{c.Ref, c.Branch, c.Merge}, "only a trigger knows the target")
	c = clone(`{"connectorRef":"git","repoName":"web","build":{"type":"branch","spec":{"branch":"main"}}}`, trigger)
	assert.False(t, c.Merge)
}

func TestTheAddressOfACodebaseIsThatOfItsConnector(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "https://git.example/acme/web", newTable(t).RepositoryURL("git", "web"))
	assert.Empty(t, newTable(t).RepositoryURL("unknown", "web"))
}

// The second attempt of a and the first one of a-2 are different steps of a stage.
func TestIdentifiersWithADashDifferFromAttempts(t *testing.T) {
	t.Parallel()
	const before = "pipeline.stages.s.spec.execution.steps."
	assert.Equal(t, "a-2", steps.ID(engine.Step{Node: before + "a", Attempt: 2}))
	assert.Equal(t, "a--2", steps.ID(engine.Step{Node: before + "a-2", Attempt: 1}))
	assert.Equal(t, "g_a--2-3", steps.ID(engine.Step{Node: before + "g.steps.a-2", Attempt: 3}))
}

func TestATagWithAVersionGivesItsParts(t *testing.T) {
	t.Parallel()
	environment := func(tag string) map[string]string {
		request, _, err := newTable(t).Stage(steps.Info{Stage: "s", Codebase: map[string]any{"tag": tag, "repoUrl": "git@git.example:acme/web.git"}}, &engine.Opening{})
		require.NoError(t, err)
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		return init.Envs
	}
	env := environment("v1.2.3-rc.1+7")
	for name, want := range map[string]string{
		"SEMVER": "1.2.3-rc.1+7", "SEMVER_SHORT": "1.2.3", "SEMVER_MAJOR": "1", "SEMVER_MINOR": "2", "SEMVER_PATCH": "3", "SEMVER_PRERELEASE": "rc.1", "SEMVER_BUILD": "7",
		"REPO": "acme/web", "REPO_NAME": "web", "REPO_OWNER": "acme", "REPO_NAMESPACE": "acme",
	} {
		assert.Equal(t, want, env["DRONE_"+name], name)
	}
	assert.NotContains(t, environment("release"), "DRONE_SEMVER")
}
