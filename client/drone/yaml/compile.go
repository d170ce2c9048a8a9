package yaml

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

const (
	// homeVolume is the home directory of the steps of an exec pipeline.
	homeVolume = "drone-home"
	// runnerVolume begins the names of the volumes of [Options].
	runnerVolume = "drone-runner-"
)

// Compile compiles the pipeline called name of a configuration file. An empty name means "default". It first replaces
// the expressions of the file by Input.Variables, as Drone does. The errors of the file name the line, the column and the
// member. A pipeline with an error does not prevent the others from being compiled.
//
// An expression is ${NAME}, with the string functions of Drone. "$${NAME}" becomes "${NAME}". A variable that is not
// set is empty. The functions are:
//
//	${NAME:-text} ${NAME:=text} ${NAME=text}   text, if the value is empty; text may contain expressions
//	${NAME^} ${NAME^^} ${NAME,} ${NAME,,}      upper and lower case of the first or all characters
//	${#NAME} ${NAME:position:length}           the length in bytes, and a part
//	${NAME#pattern} ${NAME##pattern}           without the shortest or longest prefix
//	${NAME%pattern} ${NAME%%pattern}           without the shortest or longest suffix
//	${NAME/old/new} ${NAME//old/new}           the first or all old replaced
//	${NAME/#old/new} ${NAME/%old/new}          a prefix or suffix replaced
//
// As in Drone, :? and :+ have the effect of :-, and outside of an expression "\\" becomes "\"
// and "\/" becomes "/". A value with a line break is quoted.
func Compile(config []byte, name string, in Input) (*Plan, error) {
	text, err := substitute(config, in.Variables)
	if err != nil {
		return nil, err
	}
	parsed, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := parsed.find(name)
	if err != nil {
		return nil, err
	}
	return p.compile(in)
}

// compile returns the plan of a pipeline. It returns an error that names the member and its place in
// the file if the pipeline asks for a setting that is not allowed.
func (p *pipeline) compile(in Input) (*Plan, error) {
	if p.problem != nil {
		return nil, p.problem
	}
	c := &compiler{pipeline: p, in: in, plan: &Plan{}}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.addClone(); err != nil {
		return nil, err
	}
	for _, s := range p.services {
		if err := c.addStep(s, true); err != nil {
			return nil, err
		}
	}
	for _, s := range p.steps {
		if err := c.addStep(s, false); err != nil {
			return nil, err
		}
	}
	if len(c.plan.Steps) == 0 {
		return nil, p.source.errorf("the pipeline has no steps")
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	c.number()
	return c.plan, nil
}

// compiler compiles one pipeline.
type compiler struct {
	*pipeline
	in   Input
	plan *Plan
	// sources are the steps of the file for the steps of the plan; nil for the clone.
	sources []*step

	base, below, full string // of the workspace
	volumeNames       map[string]bool
	auths             []stage.Auth
	runnerMounts      []*stage.VolumeMount
	masked            map[string]bool // the secrets in the init
}

// prepare sets the parts of the init that all steps share.
func (c *compiler) prepare() (err error) {
	if c.base, c.below, c.full, err = c.workspace.full(c.platform.windows()); err != nil {
		return err
	}
	if c.platform.windows() {
		c.base, c.full, c.below = windowsDrive(c.base), windowsDrive(c.full), windowsPath(c.below)
	}
	c.volumeNames, c.masked = map[string]bool{}, map[string]bool{}
	if err := c.addVolumes(); err != nil {
		return err
	}
	if err := c.addRunnerVolumes(); err != nil {
		return err
	}
	if err := c.decryptSecrets(); err != nil {
		return err
	}
	if c.auths, err = c.readAuths(); err != nil {
		return err
	}
	for _, value := range c.in.Hidden {
		c.mask(value)
	}
	c.mask(c.in.Netrc.Password)
	c.plan.Init.Envs = c.environmentOfAll()
	return nil
}

// decryptSecrets adds the secrets of the file to the secrets of the server, which win.
func (c *compiler) decryptSecrets() error {
	all := maps.Clone(c.in.Secrets)
	if all == nil {
		all = map[string]string{}
	}
	for _, s := range c.secrets {
		if _, known := all[s.Name]; known || s.Data == "" || c.in.SecretKey == "" {
			continue
		}
		value, err := s.decrypt(c.in.SecretKey)
		if err != nil {
			return err
		}
		all[s.Name] = value
	}
	c.in.Secrets = all
	return nil
}

// secret returns the value of a secret: of the server, of the file, of the runner, or of an external system. It is empty
// if the secret is not known.
func (c *compiler) secret(name string) (string, error) {
	if value, known := c.in.Secrets[name]; known {
		return value, nil
	}
	value := c.in.Options.Secrets[name]
	for _, s := range c.secrets {
		if value != "" || c.in.External == nil {
			break
		}
		if s.Name != name || s.Path == "" && s.Key == "" {
			continue
		}
		var err error
		if value, err = c.in.External(s); err != nil {
			return "", fmt.Errorf("the secret %q: %w", name, err)
		}
		break
	}
	c.in.Secrets[name] = value
	return value, nil
}

// mask hides a value in all output.
func (c *compiler) mask(secret string) {
	if secret != "" && !c.masked[secret] {
		c.masked[secret] = true
		c.plan.Init.Secrets = append(c.plan.Init.Secrets, secret)
	}
}

// environmentOfAll returns the variables of all steps without secrets. Later ones win.
func (c *compiler) environmentOfAll() map[string]string {
	env := map[string]string{}
	maps.Copy(env, c.in.Options.Environment)
	for name, v := range c.environment {
		if v.secret == "" {
			env[name] = v.value
		}
	}
	env["CI"], env["DRONE"] = "true", "true"
	maps.Copy(env, c.in.Variables)
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		env["GIT_"+who+"_NAME"], env["GIT_"+who+"_EMAIL"] = "drone", "noreply@drone"
		if name := c.in.Variables["DRONE_COMMIT_AUTHOR_NAME"]; name != "" {
			env["GIT_"+who+"_NAME"] = name
		}
		if mail := c.in.Variables["DRONE_COMMIT_AUTHOR_EMAIL"]; mail != "" {
			env["GIT_"+who+"_EMAIL"] = mail
		}
	}
	env["GIT_TERMINAL_PROMPT"] = "0"
	if c.clone.trace {
		env["GIT_TRACE"] = "true"
	}
	if c.clone.skipVerify {
		env["GIT_SSL_NO_VERIFY"] = "true"
	}
	// The workspace belongs to the user of the delegate, and the user of a container may be
	// another one.
	env["GIT_CONFIG_COUNT"], env["GIT_CONFIG_KEY_0"], env["GIT_CONFIG_VALUE_0"] = "1", "safe.directory", "*"
	if c.Type == typeDocker {
		env["DRONE_WORKSPACE"], env["DRONE_WORKSPACE_BASE"], env["DRONE_WORKSPACE_PATH"] = c.full, c.base, c.below
	}
	return env
}

func windowsDrive(p string) string {
	if strings.Contains(p, ":") {
		return windowsPath(p)
	}
	return "c:" + windowsPath(p)
}

func windowsPath(p string) string { return strings.ReplaceAll(p, "/", `\`) }

// addClone adds the clone, unless it is disabled. The init makes it.
func (c *compiler) addClone() error {
	if c.clone.disable {
		return nil
	}
	clone, err := c.cloneRequest()
	if err != nil {
		return err
	}
	c.plan.Init.Clone = clone
	c.plan.Steps = append(c.plan.Steps, Step{Name: cloneName, Clone: true, OnSuccess: true, OnFailure: true})
	c.sources = append(c.sources, nil)
	return nil
}

func (c *compiler) cloneRequest() (*stage.Clone, error) {
	vars := c.in.Variables
	url := vars["DRONE_GIT_HTTP_URL"]
	if url == "" {
		url = vars["DRONE_REMOTE_URL"]
	}
	if url == "" {
		return nil, c.source.errorf("the variable DRONE_GIT_HTTP_URL is empty, so there is no repository to clone: set clone.disable if there is none")
	}
	clone := &stage.Clone{
		URL: url, Depth: int(min(c.clone.depth, 1<<30)), SkipVerify: c.clone.skipVerify, Dir: strings.ReplaceAll(c.below, `\`, "/"),
	}
	if c.Type == typeExec {
		clone.Dir = ""
	}
	if n := c.in.Netrc; n.Password != "" || n.Login != "" {
		clone.Auth = &stage.Auth{Address: n.Machine, Username: n.Login, Password: n.Password}
	}
	ref, branch := vars["DRONE_COMMIT_REF"], vars["DRONE_BRANCH"]
	switch {
	case strings.HasPrefix(ref, "refs/tags/"):
		clone.Tag = strings.TrimPrefix(ref, "refs/tags/")
		return clone, nil
	case isPullRequest(ref):
		clone.Ref, clone.Merge = ref, true
	}
	clone.Branch, clone.Commit = branch, vars["DRONE_COMMIT_SHA"]
	if strings.Trim(clone.Commit, "0") == "" {
		clone.Commit = "" // a build without a commit takes the head of the branch
	}
	return clone, nil
}

func isPullRequest(ref string) bool {
	for _, prefix := range []string{"refs/pull/", "refs/pull-requests/", "refs/merge-requests/"} {
		if strings.HasPrefix(ref, prefix) {
			return true
		}
	}
	return false
}

// addVolumes adds the volumes of the pipeline.
func (c *compiler) addVolumes() error {
	for _, v := range c.volumes {
		switch {
		case v.name == "workspace", v.name == "_workspace", v.name == "_docker_socket", v.name == stage.WorkspaceVolume, strings.HasPrefix(v.name, runnerVolume), v.name == homeVolume:
			return v.source.errorf("the name %q is reserved: rename the volume", v.name)
		case c.volumeNames[v.name]:
			return v.source.errorf("the volume %q is there twice: rename one of them", v.name)
		case v.kind == "host" && !c.in.Trusted:
			return v.source.errorf("the volume %q is a directory of the host, which only a trusted repository may mount: use temp, or make the repository trusted", v.name)
		case v.medium == "memory" && !c.in.Trusted:
			return v.source.errorf("the volume %q is in memory, which only a trusted repository may use: remove the medium, or make the repository trusted", v.name)
		}
		c.volumeNames[v.name] = true
		one := &stage.Volume{}
		if v.kind == "host" {
			one.Host = &stage.HostVolume{ID: v.name, Name: v.name, Path: v.hostPath, Create: true}
		} else {
			one.Temp = &stage.TempVolume{ID: v.name, Name: v.name, Medium: v.medium, SizeLimit: v.size}
		}
		c.plan.Init.Volumes = append(c.plan.Init.Volumes, one)
	}
	if c.Type == typeExec {
		c.plan.Init.Volumes = append(c.plan.Init.Volumes, &stage.Volume{Temp: &stage.TempVolume{ID: homeVolume, Name: homeVolume}})
	}
	return nil
}

// addRunnerVolumes adds the volumes that the runner mounts into all containers.
func (c *compiler) addRunnerVolumes() error {
	if c.Type == typeExec {
		return nil
	}
	for i, text := range c.in.Options.Volumes {
		rest, readOnly := strings.CutSuffix(text, ":ro")
		cut := strings.LastIndex(rest, ":")
		if cut > 1 && rest[cut-1] >= 'A' && len(rest) > cut+1 && rest[cut+1] == '\\' { // the drive of a Windows container
			cut = strings.LastIndex(rest[:cut], ":")
		}
		if cut <= 0 || cut == len(rest)-1 {
			return fmt.Errorf("the volume %q of the runner is not of the form /host:/container or /host:/container:ro", text)
		}
		name := runnerVolume + strconv.Itoa(i)
		c.plan.Init.Volumes = append(c.plan.Init.Volumes, &stage.Volume{
			Host: &stage.HostVolume{ID: name, Name: name, Path: rest[:cut], Create: true, ReadOnly: readOnly},
		})
		c.runnerMounts = append(c.runnerMounts, &stage.VolumeMount{Name: name, Path: rest[cut+1:]})
	}
	return nil
}
