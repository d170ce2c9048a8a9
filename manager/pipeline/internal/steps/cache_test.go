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

func withCache(t *testing.T, types map[string]steps.Plugin) *steps.Table {
	t.Helper()
	cfg := settings
	cfg.Cache = &steps.Cache{Connector: "aws", Bucket: "caches", Endpoint: "https://s3.example", PathStyle: true, Prefix: "ci"}
	cfg.Types = types
	table, err := steps.New(cfg)
	require.NoError(t, err)
	return table
}

// cacheStep opens a stage with a cache and returns its init and the step that saves the cache.
func cacheStep(t *testing.T, table *steps.Table, o *engine.Opening) (*stage.InitRequest, stage.Step) {
	t.Helper()
	o.Pipeline = "shop"
	o.Caching = spec(t, `{"enabled":true,"paths":["node_modules","~/.m2","/go/pkg","/shared/deep","/workspace/x","/harness/y"]}`)
	request, target, err := table.Stage(steps.Info{Stage: "s", Account: "demo/1"}, o)
	require.NoError(t, err)
	var init stage.InitRequest
	require.NoError(t, json.Unmarshal(request.Init, &init))
	saved, err := table.Step(target, engine.Step{
		Node: "n", Identifier: "save_stage_cache", Type: "SaveStageCache", Spec: spec(t, `{"key":"k","override":true,"paths":["node_modules","~/.m2","/go/pkg"]}`),
	})
	require.NoError(t, err)
	var data stage.ExecuteRequest
	require.NoError(t, json.Unmarshal(saved.Data, &data))
	return &init, data.Step
}

func TestAStageCacheIsInTheBucketOfTheSettings(t *testing.T) {
	t.Parallel()
	_, step := cacheStep(t, withCache(t, nil), &engine.Opening{})
	assert.Equal(t, &stage.Plugin{Builtin: "storage", Args: []string{"save"}}, step.Plugin)
	assert.Equal(t, map[string]string{
		"PLUGIN_BUCKET": "caches", "PLUGIN_ENDPOINT": "https://s3.example", "PLUGIN_PATH_STYLE": "true", "PLUGIN_PREFIX": "ci/demo%2F1/-/-/shop",
		"PLUGIN_CACHE_KEY": "k", "PLUGIN_OVERRIDE": "true", "PLUGIN_POLICY": "pull-push", "PLUGIN_PATHS": `["node_modules","~/.m2","/go/pkg"]`,
		"PLUGIN_ACCESS_KEY": "${{secrets.vault://kv/aws#access}}", "PLUGIN_SECRET_KEY": "${{secrets.env://aws_secret}}",
	}, step.Environment)

	_, err := newTable(t).Step(steps.Target{}, engine.Step{Node: "n", Identifier: "n", Type: "SaveStageCache", Spec: map[string]any{}})
	require.ErrorContains(t, err, "have no cache: add")
	for want, cache := range map[string]steps.Cache{
		"cache.bucket is required":   {Region: "eu-west-1"},
		"needs region or endpoint":   {Bucket: "b"},
		`cache.connector is "git"`:   {Bucket: "b", Region: "r", Connector: "git"},
		`cache.connector is "other"`: {Bucket: "b", Region: "r", Connector: "other"},
	} {
		cfg := settings
		cfg.Cache = &cache
		_, err := steps.New(cfg)
		require.ErrorContains(t, err, want)
	}
}

func TestContainersShareThePathsOfTheCache(t *testing.T) {
	t.Parallel()
	inContainers := []engine.Step{{Identifier: "a", Type: "Run", Spec: map[string]any{"image": "node:24", "command": "x"}}}
	for name, c := range map[string]struct {
		opening engine.Opening
		want    []string // the paths of the mounts
	}{
		"host":         {engine.Opening{Announced: []engine.Step{{Identifier: "a", Type: "Run", Spec: map[string]any{"command": "x", "image": "null"}}}}, []string{"/shared", "/harness"}},
		"Docker":       {engine.Opening{Announced: inContainers}, []string{"/shared", "/harness", "/root/.m2", "/go/pkg"}},
		"pods":         {engine.Opening{Infrastructure: &engine.Infrastructure{Type: "KubernetesDirect"}}, []string{"/shared", "/harness", "/root/.m2", "/go/pkg"}},
		"a machine":    {engine.Opening{Announced: inContainers, Infrastructure: &engine.Infrastructure{Type: "VM"}}, []string{"/shared", "/harness", "/root/.m2", "/go/pkg"}},
		"a plugin":     {engine.Opening{Announced: []engine.Step{{Identifier: "a", Type: "SaveCacheGCS"}}}, []string{"/shared", "/harness", "/root/.m2", "/go/pkg"}},
		"cache step":   {engine.Opening{Announced: []engine.Step{{Identifier: "a", Type: "SaveCacheS3"}}}, []string{"/shared", "/harness"}},
		"another type": {engine.Opening{Announced: []engine.Step{{Identifier: "a", Type: "RestoreCacheS3"}}}, []string{"/shared", "/harness", "/root/.m2", "/go/pkg"}},
	} {
		c.opening.SharedPaths = []any{"/shared"}
		var types map[string]steps.Plugin
		if name == "another type" {
			types = map[string]steps.Plugin{"RestoreCacheS3": {Image: "example/cache"}}
		}
		init, step := cacheStep(t, withCache(t, types), &c.opening)
		var mounts []string
		for _, m := range step.Volumes {
			mounts = append(mounts, m.Path)
		}
		assert.Equal(t, c.want, mounts, name)
		require.Len(t, init.Volumes, len(c.want)-1, name) // the workspace needs none
		if len(c.want) > 2 {
			assert.Equal(t, `["node_modules","/root/.m2","/go/pkg"]`, step.Environment["PLUGIN_PATHS"], name)
			assert.Equal(t, name == "a machine", init.Volumes[1].Host != nil, name)
		} else {
			assert.Equal(t, `["node_modules","~/.m2","/go/pkg"]`, step.Environment["PLUGIN_PATHS"], name)
		}
	}
}

func TestCacheStepsNameTheirStorage(t *testing.T) {
	t.Parallel()
	target := steps.Target{Scope: "demo/shop"}
	step := func(kind, text string) (stage.Step, error) {
		request, err := withCache(t, nil).Step(target, engine.Step{Node: "n", Identifier: "c", Type: kind, Spec: spec(t, text)})
		var data stage.ExecuteRequest
		if err == nil {
			require.NoError(t, json.Unmarshal(request.Data, &data))
		}
		return data.Step, err
	}
	saved, err := step("SaveCache", `{"key":"k","sourcePaths":["a,b"],"archiveFormat":"Gzip"}`)
	require.NoError(t, err)
	assert.Equal(t, &stage.Plugin{Builtin: "storage", Args: []string{"save"}}, saved.Plugin)
	assert.Equal(t, map[string]string{
		"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["a,b"]`, "PLUGIN_ARCHIVE_FORMAT": "gzip", "PLUGIN_BUCKET": "caches", "PLUGIN_ENDPOINT": "https://s3.example",
		"PLUGIN_PATH_STYLE": "true", "PLUGIN_PREFIX": "ci/demo/shop", "PLUGIN_ACCESS_KEY": "${{secrets.vault://kv/aws#access}}", "PLUGIN_SECRET_KEY": "${{secrets.env://aws_secret}}",
	}, saved.Environment)
	restored, err := step("RestoreCache", `{"key":"k","providerType":"harness"}`)
	require.NoError(t, err)
	assert.Equal(t, []stage.Output{{Key: "cacheHit", Value: "cacheHit", Type: "STRING"}}, restored.Outputs)
	assert.NotContains(t, restored.Environment, "PLUGIN_POLICY", "the step has no paths to detect")
	own, err := step("RestoreCache", `{"key":"k","providerType":"S3","bucket":"own","region":"eu-west-1","connectorRef":"aws"}`)
	require.NoError(t, err)
	assert.Equal(t, "own", own.Environment["PLUGIN_BUCKET"])
	_, err = step("SaveCache", `{"key":"k","providerType":"Azure","sourcePaths":["a"]}`)
	require.ErrorContains(t, err, `spec.providerType is "Azure": use Harness, S3 or Gcs`)
	_, err = newTable(t).Step(target, engine.Step{Node: "n", Identifier: "c", Type: "SaveCache", Spec: spec(t, `{"key":"k","sourcePaths":["a"]}`)})
	require.ErrorContains(t, err, "have no cache: add cache: {bucket: NAME}")
}

func TestCachesOfGoogleCloudStorageNeedNoImageWithKeys(t *testing.T) {
	t.Parallel()
	cfg := settings
	cfg.Connectors = map[string]steps.Connector{
		"keys": {Kind: steps.GCPConnector, AccessKeySecret: "gcs_access", SecretKeySecret: "gcs_secret"}, "file": {Kind: steps.GCPConnector, KeySecret: "gcs_key"},
	}
	step := func(kind, connector string, types map[string]steps.Plugin) stage.Step {
		cfg := cfg
		cfg.Types = types
		table, err := steps.New(cfg)
		require.NoError(t, err)
		request, err := table.Step(steps.Target{}, engine.Step{
			Node: "n", Identifier: "c", Type: kind, Spec: spec(t, `{"connectorRef":"`+connector+`","bucket":"b","key":"k","sourcePaths":["a"],"sourcePath":"a"}`),
		})
		require.NoError(t, err)
		var data stage.ExecuteRequest
		require.NoError(t, json.Unmarshal(request.Data, &data))
		return data.Step
	}
	for kind, program := range map[string]string{"RestoreCacheGCS": "restore", "SaveCacheGCS": "save", "GCSUpload": "upload"} {
		with := step(kind, "account.keys", nil)
		assert.Equal(t, &stage.Plugin{Builtin: "storage", Args: []string{program}}, with.Plugin, kind)
		assert.Equal(t, []string{"https://storage.googleapis.com", "b", "${{secrets.env://gcs_access}}", "${{secrets.env://gcs_secret}}"},
			[]string{with.Environment["PLUGIN_ENDPOINT"], with.Environment["PLUGIN_BUCKET"], with.Environment["PLUGIN_ACCESS_KEY"], with.Environment["PLUGIN_SECRET_KEY"]}, kind)
		without := step(kind, "file", nil)
		assert.Nil(t, without.Plugin, kind)
		assert.Equal(t, "${{secrets.env://gcs_key}}", without.Environment["PLUGIN_JSON_KEY"], kind)
		own := step(kind, "keys", map[string]steps.Plugin{kind: {Image: "example/cache", Settings: []steps.Setting{{Field: "bucket", Variable: "BUCKET"}, {Field: "key"}, {Field: "sourcePaths", Format: "list"}, {Field: "sourcePath"}}}})
		assert.Equal(t, "example/cache", own.Image, "the type of the operator comes first")
	}
}
