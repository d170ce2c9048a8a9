package steps

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/task/stage"
)

// storageProgram is the program of the delegate and the agent for caches and uploads.
const storageProgram = "storage"

func (c *Config) checkCache() error {
	switch cache := c.Cache; {
	case cache == nil:
		return nil
	case cache.Bucket == "":
		return errors.New("cache.bucket is required")
	case cache.Region == "" && cache.Endpoint == "":
		return errors.New("cache needs region or endpoint")
	case cache.Connector != "" && c.Connectors[cache.Connector].Kind != AWSConnector:
		return fmt.Errorf("cache.connector is %q: name one of the connectors of the kind aws", cache.Connector)
	}
	return nil
}

// bundled is a step of the table that a program of the delegate or the agent carries out, without an
// image. common has the fields that all steps have.
func (t *Table) bundled(target Target, f fields, common map[string]any, p Plugin) (stage.Step, error) {
	step, err := t.container(target, fields{path: f.path, values: common, err: f.err}, "")
	if err != nil {
		return step, err
	}
	step.Plugin = &stage.Plugin{Builtin: storageProgram, Args: []string{p.program}}
	step.Volumes = target.Mounts
	maps.Copy(step.Environment, p.variables(t, f, target.Driver == driverKubernetes, 0))
	if p.program == "restore" {
		step.Outputs = append(step.Outputs, stage.Output{Key: "cacheHit", Value: "cacheHit", Type: stage.OutputString})
	}
	if p.ofStage {
		step.Environment["PLUGIN_POLICY"] = orElse(f.text("policy"), "pull-push")
	}
	if p.ofStage || p.inCache {
		if err := t.stageCache(target, f, step.Environment); err != nil {
			return step, err
		}
	}
	return step, *f.err
}

// cacheKind returns the type of a cache step that names its storage.
func cacheKind(f fields, kind string) string {
	switch provider := strings.ToLower(f.text("providerType")); provider {
	case "", "harness":
	case "s3":
		return kind + "S3"
	case "gcs":
		return kind + "GCS"
	default:
		f.fail("providerType", "is %q: use Harness, S3 or Gcs", f.text("providerType"))
	}
	return kind
}

// stageCache adds the variables of a cache in the bucket of the settings.
func (t *Table) stageCache(target Target, f fields, env map[string]string) error {
	c := t.cache
	if c == nil {
		return errors.New("the settings of the pipeline service have no cache: add cache: {bucket: NAME} to them")
	}
	paths := f.list("paths")
	for i, p := range paths {
		paths[i] = target.cachePath(p)
	}
	if len(paths) > 0 {
		env["PLUGIN_PATHS"] = jsonList(paths)
	}
	connector := t.connectors[c.Connector]
	for name, value := range map[string]string{
		"BUCKET": c.Bucket, "REGION": c.Region, "ENDPOINT": c.Endpoint, "PATH_STYLE": strconv.FormatBool(c.PathStyle),
		"PREFIX":     path.Join(c.Prefix, target.Scope),
		"ACCESS_KEY": secretRef(connector.AccessKeySecret), "SECRET_KEY": secretRef(connector.SecretKeySecret),
		"ASSUME_ROLE": connector.AssumeRole, "EXTERNAL_ID": connector.ExternalID,
	} {
		if value != "" {
			env["PLUGIN_"+name] = value
		}
	}
	return nil
}

// scope is the part of the names of objects that separates accounts and pipelines.
func (b *stageBuilder) scope() string {
	var parts []string
	for _, part := range []string{b.info.Account, b.opening.Org, b.opening.Project, b.opening.Pipeline} {
		parts = append(parts, orElse(url.PathEscape(part), "-"))
	}
	return strings.Join(parts, "/")
}

// cachePath returns a path of a cache as the containers of the stage see it.
func (t Target) cachePath(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && t.CacheHome != "" {
		return path.Join(t.CacheHome, rest)
	}
	return p
}

// shareCache lets the containers of a stage share the paths of its cache outside of the workspace.
// Without containers the steps share them anyway.
func (b *stageBuilder) shareCache(init *stage.InitRequest) error {
	if b.table.cache == nil || b.opening.Caching == nil || !b.hasContainers() {
		return nil
	}
	f := newFields("stage.spec.caching", b.opening.Caching)
	if !f.boolean("enabled", true) {
		return *f.err
	}
	b.target.CacheHome = "/root"
	for i, p := range f.list("paths") {
		if p = path.Clean(b.target.cachePath(p)); !path.IsAbs(p) || p == "/" || within("/workspace", p) || b.shares(p) {
			continue
		}
		name := "cache-" + strconv.Itoa(i)
		volume := &stage.Volume{Temp: &stage.TempVolume{Name: name}}
		if b.infrastructure.Driver == driverVM {
			// Steps without an image have the same files: the machine belongs to the stage.
			volume = &stage.Volume{Host: &stage.HostVolume{Name: name, Path: p, Create: true}}
		}
		b.mount(init, volume, name, p)
	}
	return *f.err
}

// shares reports whether the containers share a path already.
func (b *stageBuilder) shares(p string) bool {
	for _, m := range b.target.Mounts {
		if within(path.Clean(m.Path), p) {
			return true
		}
	}
	return false
}

func within(dir, p string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// hasContainers reports whether a step of the stage is known to run in a container.
func (b *stageBuilder) hasContainers() bool {
	if b.infrastructure.Driver == driverKubernetes {
		return true
	}
	for _, s := range b.opening.Announced {
		p, isPlugin := b.table.plugins[s.Type]
		image, _ := scalarText(s.Spec["image"])
		if isPlugin && p.program == "" || image != "" && image != "null" {
			return true
		}
	}
	return false
}

// cacheTypes are the types of the steps that a stage with a cache gets.
func cacheTypes() map[string]Plugin {
	settings := []Setting{{Field: "key", Variable: "CACHE_KEY"}, {Field: "override", Variable: "OVERRIDE"}}
	return map[string]Plugin{
		definition.RestoreStageCache: {program: "restore", ofStage: true, Settings: settings},
		definition.SaveStageCache:    {program: "save", ofStage: true, Settings: settings},
	}
}
