package steps

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/task/stage"
)

// DefaultTimeout is the time-out of a step that has none.
const DefaultTimeout = 10 * time.Hour

// cpuPeriod is the period of CPU quotas, in microseconds.
const cpuPeriod = 100000

func isRun(kind string) bool { return kind == "Run" || kind == "RunTests" || kind == "Test" }

// ID returns the id of a step at the manager: the identifiers of its groups and its own with
// the postfixes of strategies, joined by underscores, and the attempt after the first. A dash of an
// identifier is doubled, so that a-2 and the second attempt of a differ.
func ID(s engine.Step) string {
	const before = ".spec.execution.steps."
	id := s.Node
	if i := strings.LastIndex(id, before); i >= 0 {
		id = id[i+len(before):]
	}
	id = strings.ReplaceAll(strings.ReplaceAll(id, ".steps.", "_"), "-", "--")
	if s.Attempt > 1 {
		id += "-" + strconv.Itoa(s.Attempt)
	}
	return id
}

// Step returns the request of a step of an open stage.
func (t *Table) Step(target Target, s engine.Step) (api.StepRequest, error) {
	f := newFields("spec", s.Spec)
	timeout := s.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	var step stage.Step
	var err error
	kind := s.Type
	if kind == "RestoreCache" || kind == "SaveCache" {
		kind = cacheKind(f, kind)
	}
	plugin, isPlugin := t.plugins[kind]
	if p, ok := withKeys[kind]; ok && plugin.builtin && t.hasKeys(f) {
		p.builtin = true
		plugin = p
	}
	switch {
	case isRun(s.Type):
		step, err = t.run(target, f, s.Type)
	case s.Type == "Background":
		var command []string
		if text := f.text("command"); text != "" {
			command = []string{text}
		}
		step, err = t.background(target, f, alias(s), f.list("entrypoint"), command)
	case s.Type == "Plugin":
		step, err = t.container(target, f, f.required("image"))
		step.Run.Entrypoint = f.list("entrypoint")
		maps.Copy(step.Environment, pluginSettings(f))
	case s.Type == "GitClone":
		step, err = t.gitClone(target, f)
	case isPlugin:
		step, err = t.plugin(target, f, plugin, int(timeout.Seconds()))
	default:
		err = fmt.Errorf("the step type %s is not supported here: add it to types in the settings of the pipeline service, or use a Run step", s.Type)
	}
	if err == nil {
		err = *f.err
	}
	if err != nil {
		return api.StepRequest{}, err
	}
	maps.Copy(step.Environment, s.Environment)
	return t.stepRequest(ID(s), orElse(s.Name, s.Identifier), timeout, step)
}

// alias is the name by which other steps reach a background step.
func alias(s engine.Step) string {
	return strings.Join(append(append([]string{}, s.Groups...), s.Identifier), "_")
}

func (t *Table) stepRequest(id, name string, timeout time.Duration, step stage.Step) (api.StepRequest, error) {
	step.Timeout = int(math.Ceil(timeout.Seconds()))
	data, err := json.Marshal(stage.ExecuteRequest{Step: step})
	if err != nil {
		return api.StepRequest{}, fmt.Errorf("encoding step %s: %w", id, err)
	}
	return api.StepRequest{ID: id, Name: name, TimeoutMS: timeout.Milliseconds(), Data: t.resolvable(data)}, nil
}

// run is a step with a script, or with the entrypoint of its image.
func (t *Table) run(target Target, f fields, kind string) (stage.Step, error) {
	step, err := t.container(target, f, f.text("image"))
	command := f.text("command")
	if kind == "RunTests" {
		command = testCommand(f)
	}
	switch {
	case command != "":
		step.Run = script(target, f, command)
	case step.Image == "":
		f.fail("command", "is required without an image")
	}
	if err == nil {
		err = *f.err
	}
	return step, err
}

// testCommand is the script of the older test step: all tests run, none is selected.
func testCommand(f fields) string {
	tool := map[string]string{
		"Maven": "mvn", "Gradle": "./gradlew", "Bazel": "bazel test", "Pytest": "pytest", "Unittest": "python3 -m unittest", "Rspec": "rspec",
		"Dotnet": "dotnet test", "Nunitconsole": "nunit3-console", "Sbt": "sbt",
	}[f.required("buildTool")]
	if tool == "" {
		f.fail("buildTool", "is %q, which is not known here: use a Run step", f.text("buildTool"))
	}
	lines := []string{f.text("preCommand"), strings.TrimSpace(tool + " " + f.text("args")), f.text("postCommand")}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// script returns the command line that runs a script. The script ends at its first error.
func script(target Target, f fields, command string) stage.Run {
	shell := strings.ToLower(f.text("shell"))
	if shell == "" {
		shell = "sh"
		if target.Windows {
			shell = "powershell"
		}
	}
	const stop = "$ErrorActionPreference = 'Stop'\n"
	switch shell {
	case "sh", "bash":
		return stage.Run{Entrypoint: []string{shell, "-c"}, Command: []string{"set -e; " + command}}
	case "powershell", "pwsh":
		return stage.Run{Entrypoint: []string{shell, "-Command"}, Command: []string{stop + command}}
	case "python":
		return stage.Run{Entrypoint: []string{"python3", "-c"}, Command: []string{command}}
	}
	f.fail("shell", "is %q: use Sh, Bash, Powershell, Pwsh or Python", f.text("shell"))
	return stage.Run{}
}

// background is a step that the following steps do not wait for.
func (t *Table) background(target Target, f fields, id string, entrypoint, command []string) (stage.Step, error) {
	step, err := t.container(target, f, f.text("image"))
	step.Detach = true
	step.NetworkAliases = []string{id}
	step.Environment = maps.Clone(step.Environment)
	for name, value := range f.texts("envVariables") {
		step.Environment[name] = value
	}
	step.PortBindings = f.texts("portBindings")
	switch {
	case len(entrypoint) > 0:
		step.Run = stage.Run{Entrypoint: entrypoint}
		if f.has("args") {
			step.Run.Command = command
		}
	case f.has("args"):
		step.Run.Command = command
	case len(command) > 0:
		step.Run = script(target, f, command[0])
	case step.Image == "":
		f.fail("command", "is required without an image")
	}
	if err == nil {
		err = *f.err
	}
	return step, err
}

// plugin is a step type of the table.
func (t *Table) plugin(target Target, f fields, p Plugin, timeoutSeconds int) (stage.Step, error) {
	pods := target.Driver == driverKubernetes
	image := p.Image
	if pods && p.PodImage != "" {
		image = p.PodImage
	}
	// The connector of such a step is not the one of its image.
	own := maps.Clone(f.values)
	delete(own, "connectorRef")
	delete(own, "registryRef")
	if p.program != "" {
		return t.bundled(target, f, own, p)
	}
	step, err := t.container(target, fields{path: f.path, values: own, err: f.err}, image)
	if err != nil {
		return step, err
	}
	step.Privileged = step.Privileged || p.Privileged && !pods
	maps.Copy(step.Environment, p.variables(t, f, pods, timeoutSeconds))
	return step, *f.err
}

// gitClone is a further clone, by the image that clones for delegates of every kind.
func (t *Table) gitClone(target Target, f fields) (stage.Step, error) {
	c, err := t.clone(f)
	if err != nil {
		return stage.Step{}, err
	}
	env := f.texts("envVariables")
	if env == nil {
		env = map[string]string{}
	}
	set := func(name, value string) {
		if value != "" {
			env[name] = value
		}
	}
	set("DRONE_REMOTE_URL", c.URL)
	set("DRONE_COMMIT_SHA", c.Commit)
	set("DRONE_COMMIT_BRANCH", c.Branch)
	set("DRONE_TAG", c.Tag)
	set("DRONE_COMMIT_REF", orElse(c.Ref, refOf(c)))
	set("DRONE_WORKSPACE", c.Dir)
	set("PLUGIN_DEPTH", strconv.Itoa(c.Depth))
	if c.Depth == 0 {
		delete(env, "PLUGIN_DEPTH")
	}
	if c.SkipVerify {
		set("PLUGIN_SKIP_VERIFY", "true")
	}
	set("DRONE_BUILD_EVENT", map[bool]string{true: "tag", false: "push"}[c.Tag != ""])
	if c.Auth != nil {
		set("DRONE_NETRC_MACHINE", c.Auth.Address)
		set("DRONE_NETRC_USERNAME", c.Auth.Username)
		set("DRONE_NETRC_PASSWORD", c.Auth.Password)
	}
	target.nameWorkspace(env)
	return stage.Step{Image: "harness/drone-git", Environment: env, Volumes: target.Mounts}, *f.err
}

func refOf(c *stage.Clone) string {
	switch {
	case c.Tag != "":
		return "refs/tags/" + c.Tag
	case c.Branch != "":
		return "refs/heads/" + c.Branch
	}
	return ""
}
