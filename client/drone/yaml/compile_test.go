package yaml

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

func TestTheCloneFollowsTheBuild(t *testing.T) {
	t.Parallel()
	const url = "https://git.example/team/project.git"
	for name, c := range map[string]struct {
		vars map[string]string
		text string
		want *stage.Clone
	}{
		"push":   {nil, "", &stage.Clone{URL: url, Branch: "main", Commit: fakeCommit}},
		"depth":  {nil, "clone: {depth: 3, skip_verify: true}\n", &stage.Clone{URL: url, Branch: "main", Commit: fakeCommit, Depth: 3, SkipVerify: true}},
		"folder": {nil, "workspace: {path: a/../../b}\n", &stage.Clone{URL: url, Branch: "main", Commit: fakeCommit, Dir: "b"}},
		"tag":    {map[string]string{"DRONE_COMMIT_REF": "refs/tags/v1"}, "", &stage.Clone{URL: url, Tag: "v1"}},
		"pull request": {
			map[string]string{"DRONE_COMMIT_REF": "refs/pull/7/head"}, "",
			&stage.Clone{URL: url, Branch: "main", Ref: "refs/pull/7/head", Commit: fakeCommit, Merge: true},
		},
		"merge request": {
			map[string]string{"DRONE_COMMIT_REF": "refs/merge-requests/7/head"}, "",
			&stage.Clone{URL: url, Branch: "main", Ref: "refs/merge-requests/7/head", Commit: fakeCommit, Merge: true},
		},
		"no commit": {map[string]string{"DRONE_COMMIT_SHA": strings.Repeat("0", 40)}, "", &stage.Clone{URL: url, Branch: "main"}},
		"old url":   {map[string]string{"DRONE_GIT_HTTP_URL": "", "DRONE_REMOTE_URL": "https://old.example/x"}, "", &stage.Clone{URL: "https://old.example/x", Branch: "main", Commit: fakeCommit}},
		"disabled":  {nil, "clone: {disable: true}\n", nil},
	} {
		in := Input{Variables: push()}
		for k, v := range c.vars {
			in.Variables[k] = v
		}
		plan := compiled(t, "kind: pipeline\n"+c.text+"steps: [{name: a, image: b}]", in)
		assert.Equal(t, c.want, plan.Init.Clone, name)
		assert.Equal(t, c.want == nil, plan.step("clone") == nil, name)
	}
}

func TestStepsFollowTheirDependencies(t *testing.T) {
	t.Parallel()
	const never = ", when: {branch: never}"
	for name, c := range map[string]struct {
		steps string
		want  string
	}{
		"serial":       {"[{name: a, image: x}, {name: b, image: x}]", "clone() s(clone) a(s) b(a)"},
		"serial skip":  {"[{name: a, image: x" + never + "}, {name: b, image: x}]", "clone() s(clone) a(s) b(s)"},
		"graph":        {"[{name: a, image: x, depends_on: [clone]}, {name: b, image: x}, {name: c, image: x, depends_on: [b, a, b]}]", "clone() s(clone) a(clone) b(clone) c(a,b)"},
		"one name":     {"[{name: a, image: x, depends_on: s}]", "clone() s(clone) a(s)"},
		"forward":      {"[{name: a, image: x, depends_on: [b]}, {name: b, image: x}]", "clone() s(clone) a(b) b(clone)"},
		"skipped path": {"[{name: a, image: x, depends_on: [s]}, {name: b, image: x, depends_on: [a]" + never + "}, {name: c, image: x, depends_on: [b]" + never + "}, {name: d, image: x, depends_on: [c, clone]}]", "clone() s(clone) a(s) b(a) c(a) d(clone,a)"},
	} {
		plan := compiled(t, "kind: pipeline\nservices: [{name: s, image: x}]\nsteps: "+c.steps, Input{})
		var got []string
		for _, s := range plan.Steps {
			got = append(got, s.Name+"("+strings.Join(s.DependsOn, ",")+")")
		}
		assert.Equal(t, c.want, strings.Join(got, " "), name)
	}
	// Without a clone, dependencies on it have no effect.
	plan := compiled(t, "kind: pipeline\nclone: {disable: true}\nsteps: [{name: a, image: x, depends_on: [clone]}, {name: b, image: x, depends_on: [a]}]", Input{})
	assert.Empty(t, plan.step("a").DependsOn)
	assert.Equal(t, []string{"a"}, plan.step("b").DependsOn)
}

func TestOnlyListedPluginsArePrivileged(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"image: plugins/docker":                                 true,
		"image: plugins/docker:20, settings: {repo: a}":         true,
		"image: docker.io/plugins/ecr":                          true,
		"image: plugins/slack":                                  false,
		"image: evil.example/plugins/docker":                    false,
		"image: plugins/docker, commands: [sh]":                 false,
		"image: plugins/docker, command: [sh]":                  false,
		"image: plugins/docker, entrypoint: [sh]":               false,
		"image: plugins/docker, volumes: [{name: v, path: /x}]": false,
		"image: plugins/docker, environment: {DOCKER_HOST: x}":  false,
		"image: plugins/docker, environment: {LD_PRELOAD: x}":   false,
		"image: plugins/docker, environment: {A: x}":            true,
	} {
		plan := compiled(t, "kind: pipeline\nvolumes: [{name: v, temp: {}}]\nsteps: [{name: a, "+text+"}]", Input{})
		assert.Equal(t, want, plan.step("a").Execute.Privileged, text)
	}
	outside := compiled(t, "kind: pipeline\nworkspace: {base: /go/../srv, path: ../../x}\nsteps: [{name: a, image: b}]", Input{})
	assert.Equal(t, "/srv/x", outside.step("a").Execute.WorkingDir)
	assert.Equal(t, "x", outside.Init.Clone.Dir)
	const plugin = "steps: [{name: a, image: plugins/docker}]"
	for _, text := range []string{"workspace: {base: /usr/local/bin}\n", "workspace: {base: /go/../usr/bin}\n", "environment: {PATH: /drone/src}\n"} {
		assert.False(t, compiled(t, "kind: pipeline\n"+text+plugin, Input{}).step("a").Execute.Privileged, text)
	}
	none := Input{Options: Options{Privileged: []string{}}}
	assert.False(t, compiled(t, "kind: pipeline\n"+plugin, none).step("a").Execute.Privileged)
	own := Input{Options: Options{Privileged: []string{"registry.example/own:1"}}}
	assert.True(t, compiled(t, "kind: pipeline\nsteps: [{name: a, image: 'registry.example/own:2'}]", own).step("a").Execute.Privileged)
}

func TestStepsGetTheCredentialsOfTheRepository(t *testing.T) {
	t.Parallel()
	in := Input{Netrc: Netrc{Machine: "git.example", Login: "me", Password: "not-a-real-netrc"}}
	const text = "kind: pipeline\nsteps: [{name: a, image: b}]"
	plan := compiled(t, text, in)
	env := plan.step("a").Execute.Environment
	assert.Equal(t, "credential.https://git.example.helper", env["GIT_CONFIG_KEY_1"])
	assert.Equal(t, "not-a-real-netrc", env["DRONE_NETRC_PASSWORD"])
	assert.Equal(t, []string{"not-a-real-netrc"}, plan.Init.Secrets)
	in.Options.NetrcCloneOnly = true
	plan = compiled(t, text, in)
	for name, value := range plan.step("a").Execute.Environment {
		assert.NotContains(t, value, "not-a-real-netrc", name)
	}
	assert.Equal(t, "not-a-real-netrc", plan.Init.Clone.Auth.Password)
}

func TestVolumesOfTheRunner(t *testing.T) {
	t.Parallel()
	in := Input{Options: Options{Volumes: []string{"/a:/b", "/c:/d:ro"}}}
	plan := compiled(t, "kind: pipeline\nvolumes: [{name: v, temp: {}}]\nsteps: [{name: x, image: y, volumes: [{name: v, path: /b/}]}]", in)
	assert.Equal(t, &stage.HostVolume{ID: "drone-runner-1", Name: "drone-runner-1", Path: "/c", Create: true, ReadOnly: true}, plan.Init.Volumes[2].Host)
	var paths []string
	for _, m := range plan.step("x").Execute.Volumes {
		paths = append(paths, m.Name+" "+m.Path)
	}
	assert.Equal(t, []string{"v /b/", "dlite-workspace /drone/src", "drone-runner-1 /d"}, paths)
	in.Options.Volumes = []string{`C:\a:c:\b`}
	plan = compiled(t, "kind: pipeline\nplatform: {os: windows}\nsteps: [{name: x, image: y}]", in)
	assert.Equal(t, `C:\a`, plan.Init.Volumes[0].Host.Path)
	assert.Equal(t, `c:\drone\src`, plan.step("x").Execute.WorkingDir)
	for _, bad := range []string{"", "/a", ":/b", "/a:"} {
		in.Options.Volumes, in.Variables = []string{bad}, push()
		_, err := compile(t, "kind: pipeline\nsteps: [{name: x, image: y}]", in)
		require.ErrorContains(t, err, "of the runner is not of the form", bad)
	}
}

func TestCredentialsGoToTheRegistryThatTheyAreFor(t *testing.T) {
	t.Parallel()
	in := Input{Secrets: map[string]string{"pull": `{"auths":{"index.docker.io":{"username":"hub","password":"not-a-real-one"},"https://r.example:5000/v2/":{"auth":"bWU6eDp5"}}}`}}
	plan := compiled(t, "kind: pipeline\nimage_pull_secrets: [pull]\nsteps: [{name: a, image: golang}, {name: b, image: 'r.example:5000/x'}, {name: c, image: other.example/x}]", in)
	assert.Equal(t, "hub", plan.step("a").Execute.Auth.Username)
	assert.Equal(t, "x:y", plan.step("b").Execute.Auth.Password)
	assert.Nil(t, plan.step("c").Execute.Auth)
	assert.ElementsMatch(t, []string{"not-a-real-one", "x:y"}, plan.Init.Secrets)
	in.Secrets["pull"], in.Variables = "{", push()
	_, err := compile(t, "kind: pipeline\nimage_pull_secrets: [pull]\nsteps: [{name: a, image: golang}]", in)
	require.ErrorContains(t, err, `image_pull_secrets: the secret "pull" is not a Docker configuration`)
}

// The credentials of the runner follow those of image_pull_secrets.
func TestTheRunnerHasCredentialsForRegistries(t *testing.T) {
	t.Parallel()
	const text = "kind: pipeline\nimage_pull_secrets: [pull]\nsteps: [{name: a, image: golang}, {name: b, image: b.example/x}, {name: c, image: c.example/x}]"
	in := Input{
		Secrets:    map[string]string{"pull": `{"auths":{"docker.io":{"username":"own","password":"not-a-real-one"}}}`},
		Options:    Options{DockerConfig: `{"auths":{"docker.io":{"username":"file"},"b.example":{"username":"file","password":"not-a-real-two"}}}`},
		Registries: []stage.Auth{{Address: "b.example", Username: "plugin"}, {Address: "c.example", Username: "plugin", Password: "not-a-real-three"}},
	}
	plan := compiled(t, text, in)
	for step, user := range map[string]string{"a": "own", "b": "file", "c": "plugin"} {
		assert.Equal(t, user, plan.step(step).Execute.Auth.Username, step)
	}
	assert.ElementsMatch(t, []string{"not-a-real-one", "not-a-real-two", "not-a-real-three"}, plan.Init.Secrets)
	in.Options.DockerConfig, in.Variables = "{", push()
	_, err := compile(t, text, in)
	require.ErrorContains(t, err, "the Docker configuration of the runner is not valid")
}
