package steps_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

var settings = steps.Config{
	Connectors: map[string]steps.Connector{
		"git":  {Kind: steps.GitConnector, URL: "https://git.example/acme", Username: "bot", PasswordSecret: "git_token"},
		"reg":  {Kind: steps.RegistryConnector, URL: "https://registry.example", UsernameSecret: "reg_user", PasswordSecret: "reg_password"},
		"aws":  {Kind: steps.AWSConnector, AccessKeySecret: "aws_access", SecretKeySecret: "aws_secret"},
		"hub":  {Kind: steps.RegistryConnector, Username: "bot", PasswordSecret: "hub_password"},
		"k":    {Kind: steps.KubernetesConnector, Selectors: []string{"prod"}},
		"jfro": {Kind: steps.ArtifactoryConnector, URL: "https://artifacts.example"},
	},
	Secrets: map[string]string{"aws_access": "vault://kv/aws#access"},
	Types: map[string]steps.Plugin{
		"Notify": {Image: "example/notify", Settings: []steps.Setting{{Field: "channel", Variable: "CHANNEL", Required: true}}},
	},
}

func newTable(tb testing.TB) *steps.Table {
	tb.Helper()
	table, err := steps.New(settings)
	require.NoError(tb, err)
	return table
}

// spec decodes the JSON of a rendered spec.
func spec(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var v engine.Values
	require.NoError(tb, json.Unmarshal([]byte(text), &v))
	return v
}

// stepOf returns the payload of a step.
func stepOf(tb testing.TB, target steps.Target, kind, text string) stage.Step {
	tb.Helper()
	request, err := newTable(tb).Step(target, engine.Step{
		Node: "pipeline.stages.build.spec.execution.steps.group.steps.one_0", Identifier: "one_0", Groups: []string{"group"}, Type: kind, Spec: spec(tb, text),
	})
	require.NoError(tb, err)
	assert.Equal(tb, "group_one_0", request.ID)
	var data stage.ExecuteRequest
	require.NoError(tb, json.Unmarshal(request.Data, &data))
	return data.Step
}

func TestEachShellEndsAtTheFirstError(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]stage.Run{
		`"Sh"`:         {Entrypoint: []string{"sh", "-c"}, Command: []string{"set -e; make"}},
		`"sh"`:         {Entrypoint: []string{"sh", "-c"}, Command: []string{"set -e; make"}},
		`null`:         {Entrypoint: []string{"sh", "-c"}, Command: []string{"set -e; make"}},
		`"Bash"`:       {Entrypoint: []string{"bash", "-c"}, Command: []string{"set -e; make"}},
		`"Pwsh"`:       {Entrypoint: []string{"pwsh", "-Command"}, Command: []string{"$ErrorActionPreference = 'Stop'\nmake"}},
		`"Powershell"`: {Entrypoint: []string{"powershell", "-Command"}, Command: []string{"$ErrorActionPreference = 'Stop'\nmake"}},
		`"Python"`:     {Entrypoint: []string{"python3", "-c"}, Command: []string{"make"}},
	} {
		step := stepOf(t, steps.Target{}, "Run", `{"command":"make","shell":`+shell+`}`)
		assert.Equal(t, want, step.Run, shell)
	}
	step := stepOf(t, steps.Target{Windows: true}, "Run", `{"command":"make"}`)
	assert.Equal(t, []string{"powershell", "-Command"}, step.Run.Entrypoint)
}

func TestARunStepKeepsAllItsFields(t *testing.T) {
	t.Parallel()
	step := stepOf(t, steps.Target{Mounts: []*stage.VolumeMount{{Name: "shared-0", Path: "/cache"}}}, "Run", `{
		"image":"tool:1","connectorRef":"account.reg","command":"make","privileged":"true","runAsUser":1000,"imagePullPolicy":"Always",
		"envVariables":{"A":"x","N":5,"B":true},"outputVariables":[{"name":"V"},{"name":"W","value":"SHELL_W","type":"Secret"}],
		"reports":{"type":"JUnit","spec":{"paths":["**/*.xml"]}},"resources":{"limits":{"memory":"500Mi","cpu":"400m"}}}`)
	assert.Equal(t, "registry.example/tool:1", step.Image)
	assert.Equal(t, &stage.Auth{Address: "registry.example", Username: "${{secrets.env://reg_user}}", Password: "${{secrets.env://reg_password}}"}, step.Auth)
	assert.Equal(t, map[string]string{"A": "x", "N": "5", "B": "true"}, step.Environment)
	assert.Equal(t, []stage.Output{{Key: "V", Value: "V", Type: "STRING"}, {Key: "W", Value: "SHELL_W", Type: "SECRET"}}, step.Outputs)
	assert.Equal(t, []string{"**/*.xml"}, step.TestReport.Junit.Paths)
	assert.Equal(t, int64(500<<20), step.MemLimit)
	assert.Equal(t, int64(40000), step.CPUQuota)
	assert.Equal(t, "1000", step.User)
	assert.Equal(t, "Always", step.Pull)
	assert.True(t, step.Privileged)
	assert.Equal(t, int(steps.DefaultTimeout.Seconds()), step.Timeout)
	assert.Len(t, step.Volumes, 1)
}

// An output that is declared as a secret must not be shown, whatever step writes it.
func TestAPluginDeclaresItsOutputs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Plugin", "Notify"} {
		step := stepOf(t, steps.Target{}, kind, `{"image":"tool:1","channel":"c","outputVariables":[{"name":"SIZE"},{"name":"TOKEN","type":"Secret"}]}`)
		assert.Equal(t, []stage.Output{{Key: "SIZE", Value: "SIZE", Type: "STRING"}, {Key: "TOKEN", Value: "TOKEN", Type: "SECRET"}}, step.Outputs, kind)
	}
}

func TestABackgroundStepIsReachableByItsIdentifier(t *testing.T) {
	t.Parallel()
	step := stepOf(t, steps.Target{}, "Background", `{"image":"redis:7","connectorRef":"account.harnessImage","portBindings":{"6379":"6379"}}`)
	assert.True(t, step.Detach)
	assert.Equal(t, []string{"group_one_0"}, step.NetworkAliases)
	assert.Equal(t, map[string]string{"6379": "6379"}, step.PortBindings)
	assert.Equal(t, "redis:7", step.Image)
	assert.Nil(t, step.Auth)
	step = stepOf(t, steps.Target{}, "Background", `{"image":"db","entrypoint":["db","--quick"],"command":"ignored"}`)
	assert.Equal(t, stage.Run{Entrypoint: []string{"db", "--quick"}}, step.Run)
}

func TestSettingsOfPluginsBecomeVariables(t *testing.T) {
	t.Parallel()
	step := stepOf(t, steps.Target{}, "Plugin", `{"image":"plugins/slack","settings":{"webhook":"x","list":["a",1,true],"tree":{"a":[1]},"mixed":[{"a":1}],"none":null}}`)
	assert.Equal(t, map[string]string{
		"PLUGIN_WEBHOOK": "x", "PLUGIN_LIST": "a,1,true", "PLUGIN_TREE": `{"a":[1]}`, "PLUGIN_MIXED": `[{"a":1}]`,
	}, step.Environment)

	ecr := `{"connectorRef":"aws","account":"1234","region":"eu-west-1","imageName":"web","tags":["1","latest"],"buildArgs":{"B":"2","A":"1"},"optimize":true,"remoteCacheRepo":"cache"}`
	pods := stepOf(t, steps.Target{Driver: "kubernetes"}, "BuildAndPushECR", ecr)
	assert.Equal(t, "plugins/kaniko-ecr", pods.Image)
	assert.False(t, pods.Privileged)
	assert.Equal(t, map[string]string{
		"PLUGIN_REGISTRY": "1234.dkr.ecr.eu-west-1.amazonaws.com", "PLUGIN_REGION": "eu-west-1", "PLUGIN_REPO": "web", "PLUGIN_TAGS": "1,latest", "PLUGIN_BUILD_ARGS": "A=1,B=2",
		"PLUGIN_SNAPSHOT_MODE": "redo", "PLUGIN_ENABLE_CACHE": "true", "PLUGIN_CACHE_REPO": "cache",
		"PLUGIN_ACCESS_KEY": "${{secrets.vault://kv/aws#access}}", "PLUGIN_SECRET_KEY": "${{secrets.env://aws_secret}}",
	}, pods.Environment)
	local := stepOf(t, steps.Target{Driver: "local"}, "BuildAndPushECR", ecr)
	assert.Equal(t, "plugins/buildx-ecr", local.Image)
	assert.NotContains(t, local.Environment, "PLUGIN_SNAPSHOT_MODE")

	cache := stepOf(t, steps.Target{}, "SaveCacheS3", `{"connectorRef":"aws","bucket":"b","key":"k","sourcePaths":["a","b"],"archiveFormat":"Gzip"}`)
	assert.Equal(t, &stage.Plugin{Builtin: "storage", Args: []string{"save"}}, cache.Plugin)
	assert.Empty(t, cache.Image)
	assert.Equal(t, map[string]string{
		"PLUGIN_BUCKET": "b", "PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["a","b"]`, "PLUGIN_ARCHIVE_FORMAT": "gzip",
		"PLUGIN_ACCESS_KEY": "${{secrets.vault://kv/aws#access}}", "PLUGIN_SECRET_KEY": "${{secrets.env://aws_secret}}",
	}, cache.Environment)
	cache = stepOf(t, steps.Target{}, "SaveCacheGCS", `{"bucket":"b","key":"k","sourcePaths":["a","b"],"archiveFormat":"Gzip"}`)
	assert.Equal(t, "plugins/cache", cache.Image)
	assert.Equal(t, "gzip", cache.Environment["PLUGIN_ARCHIVE_FORMAT"])
	assert.Equal(t, "a,b", cache.Environment["PLUGIN_MOUNT"])
	assert.Equal(t, "36000s", cache.Environment["PLUGIN_BACKEND_OPERATION_TIMEOUT"])
	assert.Equal(t, "true", cache.Environment["PLUGIN_REBUILD"])

	own := stepOf(t, steps.Target{}, "Notify", `{"channel":"builds"}`)
	assert.Equal(t, map[string]string{"PLUGIN_CHANNEL": "builds"}, own.Environment)
}

func TestReferencesToSecretsBecomeAddressesForTheDelegate(t *testing.T) {
	t.Parallel()
	step := stepOf(t, steps.Target{}, "Run", `{"command":"x","envVariables":{
		"A":"${{secrets.account.aws_access}}","B":"a ${{secrets.one}}${{secrets.org.two-x}} b","OUTSIDE":"$${{secrets.}}{{secrets.one}}","URL":"${{secrets.vault://kv/x#y}}"}}`)
	assert.Equal(t, map[string]string{
		"A": "${{secrets.vault://kv/aws#access}}", "B": "a ${{secrets.env://one}}${{secrets.env://two-x}} b",
		"OUTSIDE": "$${{secrets.}}{{secrets.one}}", "URL": "${{secrets.vault://kv/x#y}}",
	}, step.Environment)
}

func TestAWrongFieldIsNamedByItsPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Run {"command":"x","shell":"Fish"}`: `spec.shell is "Fish": use Sh, Bash`,
		`Run {}`:                             "spec.command is required without an image",
		`Run {"command":"x","image":"i","connectorRef":"none"}`:                    `spec.connectorRef names the connector "none", which the settings`,
		`Run {"command":"x","image":"i","connectorRef":"git"}`:                     "of the kind git; this step needs registry",
		`Run {"command":"x","image":"i","resources":{"limits":{"memory":"much"}}}`: `spec.resources.limits.memory is "much"`,
		`Run {"command":"x","outputVariables":[{"type":"String"}]}`:                "spec.outputVariables[0].name is required",
		`Plugin {"settings":{}}`:                                                     "spec.image is required",
		`Plugin {"image":"i","entrypoint":{"first":"sh"}}`:                           "spec.entrypoint must be a list",
		`Plugin {"image":"i","settings":["a"]}`:                                      "spec.settings must be a map",
		`BuildAndPushDockerRegistry {"connectorRef":"hub","tags":["1"]}`:             "spec.repo is required",
		`BuildAndPushDockerRegistry {"connectorRef":"hub","tags":["1"],"repos":"x"}`: "spec.repo is required",
		`Notify {"channel":"c","colour":"blue"}`:                                     "spec.colour is not supported here",
		`Security {}`:                                                                "the step type Security is not supported here",
	} {
		kind, values, _ := cut(text)
		_, err := newTable(t).Step(steps.Target{}, engine.Step{Node: "n", Identifier: "n", Type: kind, Spec: spec(t, values)})
		require.ErrorContains(t, err, want, text)
	}
}

func cut(text string) (kind, values string, ok bool) {
	for i := range text {
		if text[i] == ' ' {
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

func TestEachInfrastructureHasItsDriverAndSelectors(t *testing.T) {
	t.Parallel()
	linux := map[string]any{"os": "Linux", "arch": "Arm64"}
	for name, test := range map[string]struct {
		opening   engine.Opening
		driver    string
		selectors []string
		pool      string
	}{
		"docker": {engine.Opening{Platform: linux, Runtime: map[string]any{"type": "Docker"}}, "local", []string{"linux", "arm64"}, ""},
		"cloud":  {engine.Opening{Platform: linux, Runtime: map[string]any{"type": "Cloud", "spec": map[string]any{}}}, "vm", nil, "linux-arm64"},
		"none":   {engine.Opening{Selectors: []string{"gpu"}}, "local", []string{"gpu"}, ""},
		"pods":   {engine.Opening{Infrastructure: &engine.Infrastructure{Type: "KubernetesDirect", Spec: map[string]any{"connectorRef": "k", "namespace": "n"}}}, "kubernetes", []string{"prod"}, ""},
		"pool":   {engine.Opening{Infrastructure: &engine.Infrastructure{Type: "VM", Spec: map[string]any{"type": "Pool", "spec": map[string]any{"poolName": "big", "os": "MacOS"}}}}, "vm", nil, "big"},
	} {
		request, target, err := newTable(t).Stage(steps.Info{Stage: "s"}, &test.opening)
		require.NoError(t, err, name)
		assert.Equal(t, test.driver, request.Infra, name)
		assert.Equal(t, test.driver, target.Driver, name)
		assert.ElementsMatch(t, test.selectors, request.Selectors, name)
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		assert.Equal(t, test.pool, init.Network.Options[stage.PoolOption], name)
	}
}

func TestTheInitOfAPoolHasItsTimeout(t *testing.T) {
	t.Parallel()
	open := func(pool map[string]any) (int64, error) {
		request, _, err := newTable(t).Stage(steps.Info{Stage: "s"}, &engine.Opening{Infrastructure: &engine.Infrastructure{Type: "VM", Spec: map[string]any{"type": "Pool", "spec": pool}}})
		return request.InitTimeoutMS, err
	}
	for text, want := range map[string]int64{"": 0, "90s": 90_000, "1h 30m": 5_400_000} {
		got, err := open(map[string]any{"poolName": "big", "initTimeout": text})
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	_, err := open(map[string]any{"poolName": "big", "initTimeout": "soon"})
	require.ErrorContains(t, err, `infrastructure.spec.spec.initTimeout "soon": must be a time such as`)
}

// A trigger fetches the whole history, as the merge of a pull request needs it.
func TestARunOfATriggerFetchesAllCommits(t *testing.T) {
	t.Parallel()
	for repository, depths := range map[string][2]int{`{"connectorRef":"git","repoName":"web"}`: {50, 0}, `{"connectorRef":"git","repoName":"web","depth":7}`: {7, 7}} {
		for i, triggered := range []bool{false, true} {
			request, _, err := newTable(t).Stage(steps.Info{Stage: "s", Triggered: triggered, User: "${{secrets.x}}"}, &engine.Opening{Clone: true, Repository: spec(t, repository)})
			require.NoError(t, err)
			var init stage.InitRequest
			require.NoError(t, json.Unmarshal(request.Init, &init))
			assert.Equal(t, depths[i], init.Clone.Depth, repository)
			assert.NotContains(t, string(request.Init), "${{secrets.x}}", "the name of a user is not a reference")
			assert.NotEmpty(t, init.Envs["HARNESS_USER_ID"])
		}
	}
}

func TestTheCodebaseIsClonedByTheInit(t *testing.T) {
	t.Parallel()
	request, _, err := newTable(t).Stage(steps.Info{Stage: "s", Number: 7, Codebase: map[string]any{"commitMessage": "${{secrets.prod}}", "commitSha": "0123", "branch": "main", "repoUrl": "https://git.example/acme/web.git"}}, &engine.Opening{
		Clone:       true,
		Repository:  spec(t, `{"connectorRef":"git","repoName":"web.git","build":{"type":"branch","spec":{"branch":"main"}},"depth":10,"sparseCheckout":["src"],"sslVerify":false,"submoduleStrategy":"recursive"}`),
		Variables:   []engine.Variable{{Name: "A", Value: "1"}, {Name: "not-legal", Value: "2"}},
		Environment: map[string]string{"HARNESS_STAGE_INDEX": "0"},
		Timeout:     time.Minute,
		SharedPaths: []any{"/cache"},
	})
	require.NoError(t, err)
	var init stage.InitRequest
	require.NoError(t, json.Unmarshal(request.Init, &init))
	assert.Equal(t, &stage.Clone{
		URL: "https://git.example/acme/web.git", Branch: "main", Commit: "0123", Depth: 10, Submodules: true,
		Auth: &stage.Auth{Address: "git.example", Username: "bot", Password: "${{secrets.env://git_token}}"}, Sparse: []string{"src"}, SkipVerify: true,
	}, init.Clone)
	assert.Equal(t, "acme/web", init.Envs["DRONE_REPO"])
	assert.Equal(t, "1", init.Envs["A"])
	assert.NotContains(t, init.Envs, "not-legal")
	assert.Equal(t, "0", init.Envs["HARNESS_STAGE_INDEX"])
	assert.Equal(t, "7", init.Envs["DRONE_BUILD_NUMBER"])
	assert.Equal(t, "$${{secrets.}}{{secrets.prod}}", init.Envs["DRONE_COMMIT_MESSAGE"], "a reference from outside must stay data")
	require.Len(t, init.Volumes, 1)
	assert.Equal(t, "shared-0", init.Volumes[0].Temp.Name)
	assert.EqualValues(t, 60000, request.TimeoutMS)
}

func TestStepsWithBuiltInImagesRunWithKeysThatTheReaderHasIgnored(t *testing.T) {
	t.Parallel()
	step := stepOf(t, steps.Target{}, "BuildAndPushDockerRegistry", `{"connectorRef":"hub","repo":"acme/web","tags":["1"],"remoteCacheImage":"x","platform":{"os":"Linux"}}`)
	assert.Equal(t, map[string]string{
		"PLUGIN_REPO": "acme/web", "PLUGIN_TAGS": "1", "PLUGIN_USERNAME": "bot", "PLUGIN_PASSWORD": "${{secrets.env://hub_password}}",
	}, step.Environment)
}

func TestARegistryRefIsAConnectorOfItsName(t *testing.T) {
	t.Parallel()
	push := stepOf(t, steps.Target{}, "BuildAndPushDockerRegistry", `{"registryRef":"account.reg","repo":"acme/web","tags":["1"]}`)
	assert.Equal(t, "https://registry.example", push.Environment["PLUGIN_REGISTRY"])
	assert.Equal(t, "plugins/buildx", push.Image)
	assert.Nil(t, push.Auth)
	run := stepOf(t, steps.Target{}, "Run", `{"registryRef":"reg","image":"tool:1","command":"x"}`)
	assert.Equal(t, "registry.example/tool:1", run.Image)
	_, err := newTable(t).Step(steps.Target{}, engine.Step{Node: "n", Identifier: "n", Type: "Run", Spec: spec(t, `{"registryRef":"org.none","image":"tool:1","command":"x"}`)})
	require.ErrorContains(t, err, `spec.registryRef names the connector "org.none"`)
	require.ErrorContains(t, err, "connectors: {none: {kind: registry}}")
}

func TestACodebaseWithoutAConnectorUsesTheOneOfTheSettings(t *testing.T) {
	t.Parallel()
	cfg := settings
	cfg.Codebase = "git"
	table, err := steps.New(cfg)
	require.NoError(t, err)
	opening := engine.Opening{Clone: true, Repository: spec(t, `{"repoName":"web","build":{"type":"branch","spec":{"branch":"main"}}}`)}
	request, _, err := table.Stage(steps.Info{Stage: "s"}, &opening)
	require.NoError(t, err)
	var init stage.InitRequest
	require.NoError(t, json.Unmarshal(request.Init, &init))
	assert.Equal(t, "https://git.example/acme/web", init.Clone.URL)
	assert.Equal(t, "${{secrets.env://git_token}}", init.Clone.Auth.Password)
	_, _, err = newTable(t).Stage(steps.Info{Stage: "s"}, &opening)
	require.ErrorContains(t, err, "name a connector in codebase")
	cfg.Codebase = "reg"
	_, err = steps.New(cfg)
	require.ErrorContains(t, err, `codebase is "reg": name one of the connectors of the kind git`)
}

func TestASettingOfTheFormatJSONTakesMapsAndLists(t *testing.T) {
	t.Parallel()
	table, err := steps.New(steps.Config{Types: map[string]steps.Plugin{"Scan": {Image: "example/scan", Settings: []steps.Setting{
		{Field: "with", Variable: "WITH", Format: "json"}, {Field: "paths", Variable: "PATHS", Format: "json"}, {Field: "mode", Variable: "MODE", Format: "json"},
		{Field: "absent", Variable: "ABSENT", Format: "json"},
	}}}})
	require.NoError(t, err)
	request, err := table.Step(steps.Target{}, engine.Step{Node: "n", Identifier: "n", Type: "Scan", Spec: spec(t, `{"with":{"level":2},"paths":["a","b"],"mode":"deep"}`)})
	require.NoError(t, err)
	var data stage.ExecuteRequest
	require.NoError(t, json.Unmarshal(request.Data, &data))
	assert.Equal(t, map[string]string{"PLUGIN_WITH": `{"level":2}`, "PLUGIN_PATHS": "a,b", "PLUGIN_MODE": "deep"}, data.Environment)
}

func TestThePoolMayDependOnTheSizeOfTheRuntime(t *testing.T) {
	t.Parallel()
	table, err := steps.New(steps.Config{Infrastructure: map[string]steps.Infrastructure{"Cloud": {Driver: "vm", Pool: "{os}-{size}"}}})
	require.NoError(t, err)
	for size, pool := range map[string]string{`{"size":"large"}`: "linux-large", `{}`: "linux-default"} {
		request, _, err := table.Stage(steps.Info{Stage: "s"}, &engine.Opening{Runtime: map[string]any{"type": "Cloud", "spec": spec(t, size)}})
		require.NoError(t, err)
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		assert.Equal(t, pool, init.Network.Options[stage.PoolOption])
	}
}

func TestAScriptOnAPoolOfWindowsMachinesRunsInPowerShell(t *testing.T) {
	t.Parallel()
	_, target, err := newTable(t).Stage(steps.Info{Stage: "s"}, &engine.Opening{Infrastructure: &engine.Infrastructure{
		Type: "VM", Spec: map[string]any{"type": "Pool", "spec": map[string]any{"poolName": "desktop", "os": "Windows"}},
	}})
	require.NoError(t, err)
	assert.Equal(t, []string{"powershell", "-Command"}, stepOf(t, target, "Run", `{"command":"make"}`).Run.Entrypoint)
}

func TestThePodOfAStageMaySelectItsNode(t *testing.T) {
	t.Parallel()
	open := func(kind, values string) (stage.Network, error) {
		request, _, err := newTable(t).Stage(steps.Info{Stage: "s"}, &engine.Opening{Infrastructure: &engine.Infrastructure{Type: kind, Spec: spec(t, values)}})
		if err != nil {
			return stage.Network{}, err
		}
		var init stage.InitRequest
		require.NoError(t, json.Unmarshal(request.Init, &init))
		return init.Network, nil
	}
	network, err := open("KubernetesDirect", `{"nodeSelector":{"disk":"fast","count":2}}`)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"disk": "fast", "count": "2"}, network.NodeLabels())
	network, err = open("Docker", `{"nodeSelector":{"disk":"fast"}}`)
	require.NoError(t, err)
	assert.Empty(t, network.NodeLabels())
	_, err = open("KubernetesDirect", `{"nodeSelector":["fast"]}`)
	require.ErrorContains(t, err, "infrastructure.spec.nodeSelector must be a map")
}
