package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
	"github.com/delegate-io/dlite/task/stage"
)

// Info describes the run to which a stage belongs.
type Info struct {
	// Stage is the id of the stage at the manager.
	Stage string
	// Account, Run and Number identify the run.
	Account string
	Run     string
	Number  int64
	// User started the run. Triggered reports that a trigger or a schedule did.
	User      string
	Triggered bool
	// Codebase are the values of codebase.*: what the run builds. They come from outside.
	Codebase map[string]any
}

// Target holds the facts of an open stage that its steps need. It is saved with the stage.
type Target struct {
	// Driver is local, vm or kubernetes.
	Driver string `json:"driver"`
	// Windows reports that the stage runs on Windows.
	Windows bool `json:"windows,omitempty"`
	// Mounts are mounted into each container.
	Mounts []*stage.VolumeMount `json:"mounts,omitempty"`
	// Scope separates the caches of accounts and pipelines.
	Scope string `json:"scope,omitempty"`
	// User and Pull are the user and the pull policy of containers whose step names none.
	User string `json:"user,omitempty"`
	Pull string `json:"pull,omitempty"`
	// CacheHome is the home in the containers of a stage with a cache, for its paths that begin with ~.
	CacheHome string `json:"cache_home,omitempty"`
}

// Stage returns the request that opens a stage, and its target. The caller sets the lease.
func (t *Table) Stage(info Info, o *engine.Opening) (api.StageRequest, Target, error) {
	b := stageBuilder{table: t, opening: o, info: info}
	init := stage.InitRequest{Envs: b.environment()}
	err := errors.Join(b.place(), b.platform(), b.mounts(&init))
	err = errors.Join(err, *b.spec.err)
	b.mountWorkspace()
	if err == nil {
		b.target.Scope = b.scope()
		err = b.shareCache(&init)
	}
	if err == nil && o.Clone {
		init.Clone, err = b.clone(newFields("properties.ci.codebase", o.Repository))
	}
	var services []api.StepRequest
	if err == nil {
		services, err = b.services()
	}
	if err != nil {
		return api.StageRequest{}, Target{}, err
	}
	if b.infrastructure.Driver == driverVM && b.pool != "" {
		init.Network = init.Network.InPool(b.pool)
	}
	if b.infrastructure.Driver == driverKubernetes {
		init.Network = init.Network.OnNode(b.spec.texts("nodeSelector"))
		settings, err := podSettings(b.spec, b.objects)
		if err != nil {
			return api.StageRequest{}, Target{}, err
		}
		if settings != "" {
			init.Network = init.Network.WithPodSettings(settings)
		}
	}
	payload, err := json.Marshal(init)
	if err != nil {
		return api.StageRequest{}, Target{}, fmt.Errorf("encoding the init: %w", err)
	}
	return api.StageRequest{
		ID: info.Stage, Name: o.Name, Selectors: b.selectors, Infra: b.infrastructure.Driver, Pipeline: o.Pipeline,
		TimeoutMS: o.Timeout.Milliseconds(), InitTimeoutMS: b.initTimeout.Milliseconds(), Init: t.resolvable(payload), Steps: services,
		Hold: &api.Hold{Announced: b.announced()},
	}, b.target, nil
}

// stageBuilder collects the parts of a stage.
type stageBuilder struct {
	table          *Table
	opening        *engine.Opening
	info           Info
	infrastructure Infrastructure
	spec           fields // of the infrastructure
	pool, size     string
	system         string // of the pool
	initTimeout    time.Duration
	selectors      []string
	target         Target
	objects        []map[string]any // config maps and secrets that the pod mounts
}

// place chooses the infrastructure.
func (b *stageBuilder) place() error {
	kind := "Docker"
	b.spec = newFields("infrastructure.spec", nil)
	switch o := b.opening; {
	case o.Infrastructure != nil:
		kind = o.Infrastructure.Type
		b.spec = newFields("infrastructure.spec", o.Infrastructure.Spec)
	case o.Runtime != nil:
		runtime := newFields("runtime", o.Runtime)
		kind = runtime.required("type")
		b.size = runtime.sub("spec").text("size")
		if *runtime.err != nil {
			return *runtime.err
		}
	}
	i, ok := b.table.infrastructure[kind]
	if !ok {
		return fmt.Errorf("the infrastructure %q is not known: use %s", kind, strings.Join(sortedKeys(b.table.infrastructure), ", "))
	}
	b.infrastructure = i
	b.target.Driver = i.Driver
	if kind == "KubernetesDirect" {
		b.target.User, b.target.Pull = b.spec.text("runAsUser"), pull(b.spec)
	}
	b.selectors = append(slices.Clone(i.Selectors), b.opening.Selectors...)
	if kind == "KubernetesDirect" && i.Driver == driverKubernetes {
		if c, ok := b.table.connector(b.spec, KubernetesConnector); ok {
			b.selectors = append(b.selectors, c.Selectors...)
		}
	}
	if kind == "VM" {
		pool := b.spec.sub("spec")
		b.pool = pool.text("poolName")
		if b.pool == "" {
			b.pool = pool.text("identifier")
		}
		b.system, b.initTimeout = strings.ToLower(pool.text("os")), initTimeout(pool)
	}
	return nil
}

var systems = map[string]string{"": "", "linux": "linux", "macos": "darwin", "windows": "windows"}

// platform adds the selectors of the platform, and the pool that it names.
func (b *stageBuilder) platform() error {
	f := newFields("platform", b.opening.Platform)
	system := strings.ToLower(f.text("os"))
	arch := strings.ToLower(f.text("arch"))
	if system == "" {
		system = strings.ToLower(b.spec.text("os"))
	}
	tag, ok := systems[system]
	switch {
	case *f.err != nil:
		return *f.err
	case !ok:
		return fmt.Errorf("platform.os is %q: use Linux, MacOS or Windows", system)
	case arch != "" && arch != "amd64" && arch != "arm64":
		return fmt.Errorf("platform.arch is %q: use Amd64 or Arm64", arch)
	}
	b.target.Windows = tag == "windows" || b.system == "windows"
	// Pods and machines of a pool may have another platform than their delegate.
	if !b.infrastructure.AnyPlatform && b.infrastructure.Driver == driverLocal {
		b.selectors = append(b.selectors, slices.DeleteFunc([]string{tag, arch}, func(s string) bool { return s == "" })...)
	}
	if b.pool == "" {
		b.pool = strings.NewReplacer("{os}", orElse(tag, "linux"), "{arch}", orElse(arch, "amd64"), "{size}", orElse(b.size, "default")).Replace(b.infrastructure.Pool)
	}
	return nil
}

func orElse(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// legalName matches names of variables that every shell accepts.
var legalName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environment returns the variables of all steps. Variables of the pipeline and the stage
// with a name that is no legal variable are left out.
func (b *stageBuilder) environment() map[string]string {
	env := codebaseVariables(b.codebase())
	number := strconv.FormatInt(b.info.Number, 10)
	for name, value := range map[string]string{
		"CI": "true", "DRONE": "true", "DRONE_BUILD_NUMBER": number, "DRONE_STAGE_NAME": b.opening.Identifier,
		"HARNESS_BUILD_ID": number, "HARNESS_ACCOUNT_ID": b.info.Account, "HARNESS_ORG_ID": b.opening.Org, "HARNESS_PROJECT_ID": b.opening.Project,
		"HARNESS_PIPELINE_ID": b.opening.Pipeline, "HARNESS_STAGE_ID": b.opening.Identifier, "HARNESS_EXECUTION_ID": b.info.Run,
		"HARNESS_USER_ID": expression.Escape(b.info.User),
	} {
		if value != "" {
			env[name] = value
		}
	}
	maps.Copy(env, b.opening.Environment)
	for _, v := range b.opening.Variables {
		if legalName.MatchString(v.Name) {
			env[v.Name] = v.Value
		}
	}
	return env
}

// codebaseNames are the variables that plugins know, with the values of codebase.* in them.
var codebaseNames = map[string][]string{
	"commitSha":       {"DRONE_COMMIT", "DRONE_COMMIT_SHA", "DRONE_COMMIT_AFTER"},
	"baseCommitSha":   {"DRONE_COMMIT_BEFORE"},
	"branch":          {"DRONE_BRANCH", "DRONE_COMMIT_BRANCH"},
	"tag":             {"DRONE_TAG"},
	"sourceBranch":    {"DRONE_SOURCE_BRANCH"},
	"targetBranch":    {"DRONE_TARGET_BRANCH"},
	"prNumber":        {"DRONE_PULL_REQUEST"},
	"prTitle":         {"DRONE_PULL_REQUEST_TITLE"},
	"pullRequestLink": {"DRONE_COMMIT_LINK"},
	"commitMessage":   {"DRONE_COMMIT_MESSAGE"},
	"commitRef":       {"DRONE_COMMIT_REF"},
	"gitUser":         {"DRONE_COMMIT_AUTHOR_NAME"},
	"gitUserId":       {"DRONE_COMMIT_AUTHOR"},
	"gitUserEmail":    {"DRONE_COMMIT_AUTHOR_EMAIL"},
	"gitUserAvatar":   {"DRONE_COMMIT_AUTHOR_AVATAR"},
	"repoUrl":         {"DRONE_REPO_LINK", "DRONE_REMOTE_URL", "DRONE_GIT_HTTP_URL"},
}

// codebase returns the values of the run. Without a build among them, the clone of the stage names the
// branch, the tag or the pull request.
func (b *stageBuilder) codebase() map[string]any {
	given := b.info.Codebase
	if given["build"] != nil || !b.opening.Clone {
		return given
	}
	values := maps.Clone(given)
	if values == nil {
		values = map[string]any{}
	}
	repository := newFields("", b.opening.Repository)
	build := repository.sub("build")
	values["build"] = build.values
	set := func(name, value string) {
		if _, ok := values[name]; !ok && value != "" {
			values[name] = value
		}
	}
	spec := build.sub("spec")
	switch build.text("type") {
	case "branch":
		set("branch", spec.text("branch"))
	case "tag":
		set("tag", spec.text("tag"))
	case "PR":
		set("prNumber", spec.text("number"))
	case "commitSha":
		set("commitSha", spec.text("commitSha"))
		set("branch", spec.text("branch"))
	}
	return values
}

func codebaseVariables(codebase map[string]any) map[string]string {
	env := map[string]string{}
	for name, variables := range codebaseNames {
		value, ok := scalarText(codebase[name])
		if !ok || value == "" {
			continue
		}
		for _, v := range variables {
			env[v] = expression.Escape(value)
		}
	}
	if address := env["DRONE_REPO_LINK"]; address != "" {
		repo := strings.TrimSuffix(path.Base(address), ".git")
		owner := path.Base(path.Dir(address))
		if i := strings.LastIndex(owner, ":"); i >= 0 { // git@host:owner/name
			owner = owner[i+1:]
		}
		env["DRONE_REPO_NAME"], env["DRONE_REPO"] = repo, owner+"/"+repo
		env["DRONE_REPO_NAMESPACE"], env["DRONE_REPO_OWNER"] = owner, owner
	}
	maps.Copy(env, semver(env["DRONE_TAG"]))
	build, _ := codebase["build"].(map[string]any)
	if kind, ok := scalarText(build["type"]); ok && kind != "" {
		env["DRONE_BUILD_EVENT"] = map[string]string{"PR": "pull_request", "tag": "tag"}[kind]
		if env["DRONE_BUILD_EVENT"] == "" {
			env["DRONE_BUILD_EVENT"] = "push"
		}
	}
	return env
}

var semverPattern = regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?$`)

// semver returns the parts of a tag that is a semantic version.
func semver(tag string) map[string]string {
	m := semverPattern.FindStringSubmatch(tag)
	if m == nil {
		return nil
	}
	env := map[string]string{
		"DRONE_SEMVER": strings.TrimPrefix(tag, "v"), "DRONE_SEMVER_SHORT": m[1] + "." + m[2] + "." + m[3],
		"DRONE_SEMVER_MAJOR": m[1], "DRONE_SEMVER_MINOR": m[2], "DRONE_SEMVER_PATCH": m[3],
	}
	if m[4] != "" {
		env["DRONE_SEMVER_PRERELEASE"] = m[4]
	}
	if m[5] != "" {
		env["DRONE_SEMVER_BUILD"] = m[5]
	}
	return env
}

// mounts adds the shared paths and the volumes of the infrastructure.
func (b *stageBuilder) mounts(init *stage.InitRequest) error {
	shared := newFields("stage.spec", map[string]any{"sharedPaths": b.opening.SharedPaths})
	for i, at := range shared.list("sharedPaths") {
		if !path.IsAbs(at) {
			shared.fail(fmt.Sprintf("sharedPaths[%d]", i), "is %q: use an absolute path", at)
		}
		b.mount(init, &stage.Volume{Temp: &stage.TempVolume{Name: "shared-" + strconv.Itoa(i)}}, "shared-"+strconv.Itoa(i), at)
	}
	for i, v := range b.spec.maps("volumes") {
		name := "volume-" + strconv.Itoa(i)
		if object := podObject(v, name); object != nil && b.infrastructure.Driver == driverKubernetes {
			b.objects = append(b.objects, object)
			b.target.Mounts = append(b.target.Mounts, &stage.VolumeMount{Name: name, Path: v.required("mountPath")})
			continue
		}
		b.mount(init, podVolume(v, name), name, v.required("mountPath"))
	}
	return *shared.err
}

func (b *stageBuilder) mount(init *stage.InitRequest, v *stage.Volume, name, at string) {
	init.Volumes = append(init.Volumes, v)
	b.target.Mounts = append(b.target.Mounts, &stage.VolumeMount{Name: name, Path: at})
}

// harnessPath is the path of the workspace in the containers of Harness. Scripts and settings name it.
const harnessPath = "/harness"

// mountWorkspace gives the workspace the path that it has in Harness, unless the stage mounts another
// volume there.
func (b *stageBuilder) mountWorkspace() {
	if !b.target.Windows && !b.shares(harnessPath) {
		b.target.Mounts = append(b.target.Mounts, &stage.VolumeMount{Name: stage.WorkspaceVolume, Path: harnessPath})
	}
}

// inWorkspace returns a path that the driver reads: relative to the workspace if it is in it.
func inWorkspace(p string) string {
	if rest, ok := strings.CutPrefix(p, harnessPath+"/"); ok {
		return rest
	}
	if p == harnessPath {
		return "."
	}
	return p
}

// podObject returns the volume of a config map or a secret of the cluster, or nil for another volume.
func podObject(f fields, name string) map[string]any {
	spec, field, named := f.sub("spec"), "configMap", "name"
	switch f.text("type") {
	case "ConfigMap":
	case "Secret":
		field, named = "secret", "secretName"
	default:
		return nil
	}
	source := map[string]any{named: spec.required("name")}
	keepBooleans(source, spec, "optional")
	spec.only("name", "optional")
	return map[string]any{"name": name, field: source}
}

func podVolume(f fields, name string) *stage.Volume {
	spec := f.sub("spec")
	v := &stage.Volume{}
	switch kind := f.required("type"); kind {
	case "EmptyDir":
		v.Temp = &stage.TempVolume{Name: name, Medium: strings.ToLower(spec.text("medium")), SizeLimit: memoryBytes(spec, "size")}
	case "HostPath":
		v.Host = &stage.HostVolume{Name: name, Path: spec.required("path"), Create: spec.text("type") == "DirectoryOrCreate"}
	case "PersistentVolumeClaim":
		v.Claim = &stage.ClaimVolume{Name: name, Claim: spec.required("claimName"), ReadOnly: spec.boolean("readOnly", false)}
	default:
		f.fail("type", "is %q: use EmptyDir, HostPath or PersistentVolumeClaim, or in a pod also ConfigMap and Secret", kind)
	}
	return v
}

// services returns the background steps of serviceDependencies.
func (b *stageBuilder) services() ([]api.StepRequest, error) {
	var all []api.StepRequest
	for i, s := range b.opening.Services {
		f := newFields(fmt.Sprintf("stage.spec.serviceDependencies[%d]", i), s)
		spec := f.sub("spec")
		id := f.required("identifier")
		if *f.err != nil {
			return nil, *f.err
		}
		step, err := b.table.background(b.target, spec, id, spec.list("entrypoint"), spec.list("args"))
		if err != nil {
			return nil, err
		}
		request, err := b.table.stepRequest("service_"+id, orElse(f.text("name"), id), 0, step)
		if err != nil {
			return nil, err
		}
		all = append(all, request)
	}
	return all, nil
}

// announced returns the steps that are known, so that the driver can prepare for their
// containers.
func (b *stageBuilder) announced() []api.StepRequest {
	var all []api.StepRequest
	for _, s := range b.opening.Announced {
		step, err := b.table.Step(b.target, s)
		if err != nil {
			continue // the step itself reports the error when its turn comes, or is skipped
		}
		all = append(all, step)
	}
	return all
}
