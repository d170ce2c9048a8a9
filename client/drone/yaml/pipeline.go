package yaml

import (
	"fmt"
	"path"
	"strings"
)

const (
	defaultName = "default"
	cloneName   = "clone"

	typeDocker = "docker"
	typeExec   = "exec"
)

// The bounds of a pipeline.
const (
	maxSteps    = 1000
	maxPatterns = 2000   // of all conditions
	maxName     = 100    // bytes of the name of a step
	maxCommands = 96_000 // bytes of the commands of a step; the kernel bounds an argument at 128 KiB
)

// pipeline is a document of kind pipeline.
type pipeline struct {
	// Name is "default" for a pipeline without a name.
	Name string
	// Type is "docker" or "exec". A pipeline of another type cannot be compiled.
	Type string

	source value
	// problem is the error of the pipeline, or nil. The other pipelines of the file can run.
	problem     error
	secrets     []Secret
	platform    platform
	clone       cloneSettings
	environment map[string]variable
	workspace   workspace
	pullSecrets []string
	volumes     []volume
	services    []*step
	steps       []*step
}

type platform struct{ os, arch, variant, version string }

func (p platform) windows() bool { return strings.EqualFold(p.os, "windows") }

type cloneSettings struct {
	disable, skipVerify, trace bool
	depth                      int64
}

type workspace struct {
	base, path string
	source     value
}

type volume struct {
	source   value
	name     string
	kind     string // "temp" or "host"
	medium   string
	size     int64
	hostPath string
}

// step is a step or a service.
type step struct {
	source  value
	members map[string]value

	name, image, pull, user, network, workingDir, failure string
	command, commands, entrypoint, dependsOn              []string
	dns, dnsSearch, extraHosts                            []string
	detach, privileged                                    bool
	memory, memorySwap, shm                               int64
	cpu                                                   float64
	environment                                           map[string]variable
	settings                                              []setting
	volumes, devices                                      []mount
	when                                                  conditions
}

type mount struct{ name, path string }

// variable is a value or the name of a secret.
type variable struct {
	value, secret string
}

// setting is a setting of a plugin: a variable.
type setting struct {
	name string
	variable
}

// readPipeline reads a pipeline. The result has the name and the type of a pipeline with a problem.
func readPipeline(v value) (*pipeline, error) {
	p := &pipeline{source: v}
	var err error
	if p.Name, err = v.member("name"); err != nil {
		return nil, err
	}
	if p.Type, err = v.member("type"); err != nil {
		return nil, err
	}
	if p.Name == "" {
		p.Name = defaultName
	}
	if p.Type == "" {
		p.Type = typeDocker
	}
	p.problem = p.read(v)
	return p, nil
}

func (p *pipeline) read(v value) error {
	if p.Type != typeDocker && p.Type != typeExec {
		return v.errorf("the type %q is not supported: use docker or exec", p.Type)
	}
	fields := map[string]func(value) error{
		"kind": nil, "type": nil, "name": nil, "version": nil,
		// The server starts the pipeline: it decides on these.
		"trigger": nil, "depends_on": nil, "node": nil, "concurrency": nil,
		"platform":           p.readPlatform,
		"clone":              p.readClone,
		"environment":        set(&p.environment, readEnvironment),
		"workspace":          p.readWorkspace,
		"image_pull_secrets": set(&p.pullSecrets, value.texts),
		"volumes":            set(&p.volumes, func(v value) ([]volume, error) { return readList(v, readVolume) }),
		"steps":              set(&p.steps, func(v value) ([]*step, error) { return readList(v, p.readStep) }),
		"services":           set(&p.services, func(v value) ([]*step, error) { return readList(v, p.readStep) }),
	}
	if p.Type == typeExec {
		delete(fields, "services")
		delete(fields, "volumes")
		delete(fields, "image_pull_secrets")
	}
	members, err := v.members()
	if err != nil {
		return err
	}
	// Members that only hold anchors.
	for _, m := range members {
		if strings.HasPrefix(m.key, "x-") || strings.HasPrefix(m.key, ".") {
			fields[m.key] = nil
		}
	}
	if err := v.read(fields); err != nil {
		return err
	}
	if n := len(p.steps) + len(p.services); n > maxSteps {
		return v.errorf("the pipeline has %d steps and services: at most %d are possible", n, maxSteps)
	}
	if n := p.patterns(); n > maxPatterns {
		return v.errorf("the conditions of the pipeline have %d patterns: at most %d are possible", n, maxPatterns)
	}
	return nil
}

// patterns counts the patterns of all conditions.
func (p *pipeline) patterns() int {
	n := 0
	for _, s := range append(append([]*step{}, p.services...), p.steps...) {
		for _, c := range s.when {
			n += len(c.include) + len(c.exclude)
		}
	}
	return n
}

func (p *pipeline) readPlatform(v value) error {
	return v.read(map[string]func(value) error{
		"os": set(&p.platform.os, value.text), "arch": set(&p.platform.arch, value.text),
		"variant": set(&p.platform.variant, value.text), "version": set(&p.platform.version, value.text),
	})
}

func (p *pipeline) readClone(v value) error {
	return v.read(map[string]func(value) error{
		"disable": set(&p.clone.disable, value.bool), "depth": set(&p.clone.depth, value.integer),
		"skip_verify": set(&p.clone.skipVerify, value.bool), "trace": set(&p.clone.trace, value.bool),
		// The driver tries three times in any case.
		"retries": func(v value) error { _, err := v.integer(); return err },
	})
}

func (p *pipeline) readWorkspace(v value) error {
	p.workspace.source = v
	return v.read(map[string]func(value) error{
		"base": set(&p.workspace.base, value.text), "path": set(&p.workspace.path, value.text),
	})
}

func readVolume(v value) (volume, error) {
	one := volume{source: v}
	err := v.read(map[string]func(value) error{
		"name": set(&one.name, value.text),
		"temp": func(v value) error {
			one.kind = "temp"
			return v.read(map[string]func(value) error{
				"medium": set(&one.medium, value.text), "size_limit": set(&one.size, value.size),
			})
		},
		"host": func(v value) error {
			one.kind = "host"
			return v.read(map[string]func(value) error{"path": set(&one.hostPath, value.text)})
		},
	})
	switch {
	case err != nil:
		return one, err
	case one.name == "":
		return one, v.errorf("the volume has no name")
	case one.kind == "":
		return one, v.errorf("the volume %q has neither temp nor host", one.name)
	case one.kind == "host" && one.hostPath == "":
		return one, v.errorf("the volume %q has no host.path", one.name)
	case one.medium != "" && one.medium != "memory":
		return one, v.errorf("the medium %q is not supported: use memory, or none", one.medium)
	}
	return one, nil
}

// readStep reads a step or a service.
func (p *pipeline) readStep(v value) (*step, error) {
	s := &step{source: v, members: map[string]value{}}
	fields := map[string]func(value) error{
		"name": set(&s.name, value.text), "commands": set(&s.commands, value.texts), "depends_on": set(&s.dependsOn, readNames),
		"detach": set(&s.detach, value.bool), "environment": set(&s.environment, readEnvironment),
		"failure": set(&s.failure, readFailure), "when": set(&s.when, readConditions),
		// The platform decides on the shell.
		"shell": nil,
	}
	if p.Type == typeDocker {
		s.readContainer(fields)
	}
	members, err := v.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		s.members[m.key] = m.value
	}
	if err := v.read(fields); err != nil {
		return nil, err
	}
	return s, s.check(p.Type)
}

// readContainer adds the members of steps in containers to fields.
func (s *step) readContainer(fields map[string]func(value) error) {
	for name, read := range map[string]func(value) error{
		"image": set(&s.image, value.text), "pull": set(&s.pull, readPull), "user": set(&s.user, value.text),
		"network_mode": set(&s.network, value.text), "working_dir": set(&s.workingDir, value.text),
		"command": set(&s.command, value.texts), "entrypoint": set(&s.entrypoint, value.texts),
		"dns": set(&s.dns, readNames), "dns_search": set(&s.dnsSearch, readNames), "extra_hosts": set(&s.extraHosts, value.texts),
		"privileged": set(&s.privileged, value.bool),
		"mem_limit":  set(&s.memory, value.size), "memswap_limit": set(&s.memorySwap, value.size), "shm_size": set(&s.shm, value.size),
		"settings":  set(&s.settings, readSettings),
		"volumes":   set(&s.volumes, func(v value) ([]mount, error) { return readList(v, readMount) }),
		"devices":   set(&s.devices, func(v value) ([]mount, error) { return readList(v, readMount) }),
		"resources": s.readResources,
		// Containers of one network reach all ports of each other.
		"ports": nil,
	} {
		fields[name] = read
	}
}

// check checks a step by itself.
func (s *step) check(kind string) error {
	switch {
	case s.name == "":
		return s.source.errorf("it has no name")
	case len(s.name) > maxName:
		return s.source.errorf("its name has %d bytes: at most %d are possible", len(s.name), maxName)
	case kind == typeDocker && s.image == "":
		return s.source.errorf("the step %q has no image", s.name)
	case kind == typeExec && len(s.commands) == 0:
		return s.source.errorf("the step %q has no commands", s.name)
	case len(strings.Join(s.commands, "\n"))+64*len(s.commands) > maxCommands:
		return s.members["commands"].errorf("the commands have more than %d bytes: put them into a file of the repository", maxCommands)
	}
	for _, m := range append(append([]mount{}, s.volumes...), s.devices...) {
		if m.name == "" {
			return s.source.errorf("the step %q mounts a volume without a name", s.name)
		}
	}
	return nil
}

// readNames reads a list of names, or one name.
func readNames(v value) ([]string, error) {
	if v.isScalar() && !v.isNull() {
		text, err := v.text()
		return []string{text}, err
	}
	return v.texts()
}

func readMount(v value) (m mount, err error) {
	err = v.read(map[string]func(value) error{"name": set(&m.name, value.text), "path": set(&m.path, value.text)})
	return m, err
}

func readPull(v value) (string, error) {
	text, err := v.text()
	if err != nil {
		return "", err
	}
	switch strings.ToLower(text) {
	case "", "default":
		return "", nil
	case "always", "true":
		return "Always", nil
	case "if-not-exists":
		return "IfNotPresent", nil
	case "never":
		return "Never", nil
	}
	return "", v.errorf("the policy %q is not supported: use always, if-not-exists or never", text)
}

func readFailure(v value) (string, error) {
	text, err := v.text()
	if err != nil {
		return "", err
	}
	switch strings.ToLower(text) {
	case "", "always": // the default
		return "", nil
	case "ignore":
		return "ignore", nil
	case "fast", "fast-fail", "fail-fast":
		return "fast", nil
	}
	return "", v.errorf("the value %q is not supported: use ignore or fast", text)
}

// readResources reads the limits of a container. Requests have no effect on one machine.
func (s *step) readResources(v value) error {
	return v.read(map[string]func(value) error{
		"requests": nil,
		"limits": func(v value) error {
			return v.read(map[string]func(value) error{
				"memory": set(&s.memory, value.size),
				"cpu":    set(&s.cpu, readCPU),
			})
		},
	})
}

// readCPU reads a number of processors, such as 0.5, or thousandths of one, such as 500m.
func readCPU(v value) (float64, error) {
	text, err := v.text()
	if err != nil || text == "" {
		return 0, err
	}
	var cpu float64
	unit := 1.0
	number, thousandths := strings.CutSuffix(text, "m")
	if thousandths {
		unit = 1000
	}
	if _, err := fmt.Sscanf(number+"\n", "%g\n", &cpu); err != nil || !(cpu > 0 && cpu <= 1e6) {
		return 0, v.errorf("%.40q is not a number of processors such as 0.5 or 500m", text)
	}
	return cpu / unit, nil
}

// readEnvironment reads variables, or names of secrets.
func readEnvironment(v value) (map[string]variable, error) {
	members, err := v.members()
	if err != nil {
		return nil, err
	}
	env := map[string]variable{}
	for _, m := range members {
		if m.key == "" || strings.ContainsAny(m.key, "=\x00") {
			return nil, m.value.errorf("the name %q of a variable is not valid", m.key)
		}
		one, err := readVariable(m.value)
		if err != nil {
			return nil, err
		}
		env[m.key] = one
	}
	return env, nil
}

func readVariable(v value) (one variable, err error) {
	if !v.isMap() {
		one.value, err = v.text()
		return one, err
	}
	err = v.read(map[string]func(value) error{
		"value": set(&one.value, value.text), "from_secret": set(&one.secret, value.text), "name": nil, "path": nil,
	})
	one.secret = strings.TrimSpace(one.secret)
	return one, err
}

// full returns the paths of the workspace: the directory that is shared, the path below it,
// and both together.
func (w workspace) full(windows bool) (base, below, full string, err error) {
	base = "/drone/src"
	if w.base != "" {
		base = path.Clean(strings.ReplaceAll(w.base, `\`, "/"))
	}
	below = strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(w.path, `\`, "/")), "/")
	full = path.Join(base, below)
	onDrive := windows && len(base) > 2 && base[1:3] == ":/"
	if !path.IsAbs(base) && !onDrive {
		return "", "", "", w.source.errorf("the path %q is not absolute", w.base)
	}
	if base == "/" || restrictedPath(base) || restrictedPath(full) {
		return "", "", "", w.source.errorf("the path %q is not allowed", full)
	}
	return base, below, full, nil
}

// restrictedPath reports whether a directory belongs to the system of the container or to the
// driver.
func restrictedPath(p string) bool {
	p = path.Clean(p)
	for _, dir := range []string{"/bin", "/boot", "/dev", "/dlite", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var"} {
		if p == dir {
			return true
		}
	}
	return strings.HasPrefix(p, "/dev/") || strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/sys/") || strings.HasPrefix(p, "/dlite/")
}
