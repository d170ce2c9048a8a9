package yaml

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// addStep adds a step or a service to the plan.
func (c *compiler) addStep(s *step, service bool) error {
	success, failure := s.when.onStatus()
	one := Step{
		Name: s.name, Image: s.image, OnSuccess: success, OnFailure: failure,
		IgnoreFailure: s.failure == "ignore", FailFast: s.failure == "fast",
		Detached: service || s.detach, Skipped: !s.when.met(c.in.Variables),
	}
	e := &one.Execute
	e.ID, e.Name, e.Detach = s.name, s.name, one.Detached
	var err error
	if e.Environment, e.Secrets, err = c.environmentOf(s, one.Skipped); err != nil {
		return err
	}
	for _, secret := range e.Secrets {
		c.mask(secret)
	}
	if c.Type == typeExec {
		c.host(s, e)
	} else {
		err = c.container(s, e, one.Detached)
	}
	if err != nil {
		return err
	}
	c.plan.Steps = append(c.plan.Steps, one)
	c.sources = append(c.sources, s)
	return nil
}

// environmentOf returns the variables of one step, without the variables of all steps, and the secrets in
// them. Secrets are not in the init: the values of a step never reach a disk. The variable of a
// secret that is not known is empty. A skipped step needs no secrets.
func (c *compiler) environmentOf(s *step, skipped bool) (env map[string]string, secrets []string, err error) {
	env = map[string]string{}
	hide := func(value string) {
		if value != "" && !slices.Contains(secrets, value) {
			secrets = append(secrets, value)
		}
	}
	add := func(name string, v variable) {
		value := v.value
		if v.secret != "" && !skipped && err == nil {
			value, err = c.secret(v.secret)
			hide(value)
		}
		env[name] = value
	}
	for name, value := range c.in.Hidden {
		_, own := c.in.Variables[name]
		if _, ofPipeline := c.environment[name]; !own && !ofPipeline {
			env[name] = value
			hide(value)
		}
	}
	for _, name := range sortedNames(c.environment) {
		v := c.environment[name]
		if _, own := c.in.Variables[name]; v.secret != "" && !own {
			add(name, v)
		}
	}
	if !c.in.Options.NetrcCloneOnly {
		maps.Copy(env, c.credentials())
	}
	for _, name := range sortedNames(s.environment) {
		add(name, s.environment[name])
	}
	for _, one := range s.settings {
		add(one.name, one.variable)
	}
	env["DRONE_STEP_NAME"] = s.name
	slices.Sort(secrets)
	return env, secrets, err
}

func sortedNames(env map[string]variable) []string { return slices.Sorted(maps.Keys(env)) }

// credentials returns variables with the credentials of the repository, and git's
// configuration for them. Git asks a helper, which prints the variables, so no file has them.
func (c *compiler) credentials() map[string]string {
	n := c.in.Netrc
	if n.Machine == "" {
		return nil
	}
	const helper = `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$DRONE_NETRC_USERNAME" "$DRONE_NETRC_PASSWORD"; }; f`
	scheme := "https"
	if strings.HasPrefix(c.in.Variables["DRONE_GIT_HTTP_URL"], "http://") {
		scheme = "http"
	}
	return map[string]string{
		"DRONE_NETRC_MACHINE": n.Machine, "DRONE_NETRC_USERNAME": n.Login, "DRONE_NETRC_PASSWORD": n.Password,
		"DRONE_NETRC_FILE": "machine " + n.Machine + " login " + n.Login + " password " + n.Password,
		"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "credential." + scheme + "://" + n.Machine + ".helper", "GIT_CONFIG_VALUE_1": helper,
	}
}

// host completes a step that runs as a process.
func (c *compiler) host(s *step, e *stage.ExecuteRequest) {
	e.Volumes = []*stage.VolumeMount{{Name: homeVolume, Path: "/" + homeVolume}}
	pathVariable := e.Environment["PATH"]
	delete(e.Environment, "PATH")
	if c.platform.windows() {
		e.Run = powerShell(s.commands, windowsProlog(pathVariable))
		return
	}
	e.Run = posixShell(s.commands, hostProlog(pathVariable))
}

// container completes a step that runs in a container.
func (c *compiler) container(s *step, e *stage.ExecuteRequest, detached bool) error {
	if err := c.allowed(s); err != nil {
		return err
	}
	name, err := parseImage(s.image)
	if err != nil {
		return s.members["image"].errorf("the image %q is not valid: %v", s.image, err)
	}
	e.Image, e.Pull, e.User = s.image, s.pull, s.user
	e.Auth = c.authFor(name)
	e.Network, e.Networks = s.network, c.in.Options.Networks
	e.DNS, e.DNSSearch, e.ExtraHosts = s.dns, s.dnsSearch, s.extraHosts
	e.Privileged = s.privileged || c.privilegedPlugin(s, name)
	if detached {
		e.NetworkAliases = []string{s.name}
	}
	switch {
	case len(s.commands) == 0:
		e.Run = stage.Run{Entrypoint: s.entrypoint, Command: s.command}
	case c.platform.windows():
		e.Run = powerShell(s.commands, "")
	default:
		e.Run = posixShell(s.commands, "")
	}
	switch {
	case s.workingDir == "" && detached && len(s.commands) == 0:
		// The directory of the image.
	case s.workingDir == "" || c.platform.windows():
		e.WorkingDir = s.workingDir
		if e.WorkingDir == "" {
			e.WorkingDir = c.full
		}
	case path.IsAbs(s.workingDir):
		e.WorkingDir = s.workingDir
	default:
		e.WorkingDir = path.Join(c.full, s.workingDir)
	}
	c.limit(s, e)
	return c.mountVolumes(s, e)
}

// allowed refuses settings that only trusted repositories may use.
func (c *compiler) allowed(s *step) error {
	if c.in.Trusted {
		return nil
	}
	for _, one := range []struct {
		member string
		used   bool
	}{
		{"privileged", s.privileged}, {"devices", len(s.devices) > 0}, {"dns", len(s.dns) > 0}, {"dns_search", len(s.dnsSearch) > 0},
		{"extra_hosts", len(s.extraHosts) > 0}, {"network_mode", s.network != ""},
	} {
		if one.used {
			return s.members[one.member].errorf("only a trusted repository may set it: remove it, or make the repository trusted")
		}
	}
	return nil
}

// limit sets the limits of the container: the step's, or else the runner's.
func (c *compiler) limit(s *step, e *stage.ExecuteRequest) {
	o := c.in.Options
	e.MemLimit, e.MemSwapLimit, e.ShmSize = or(s.memory, o.Memory), or(s.memorySwap, o.MemorySwap), or(s.shm, o.ShmSize)
	e.CPUPeriod, e.CPUQuota, e.CPUShares, e.CPUSet = o.CPUPeriod, o.CPUQuota, o.CPUShares, o.CPUSet
	if s.cpu > 0 {
		const period = 100_000 // microseconds
		quota := int64(s.cpu * period)
		if o.CPUQuota == 0 || quota*or(o.CPUPeriod, period) < o.CPUQuota*period {
			e.CPUPeriod, e.CPUQuota = period, max(quota, 1000) // the kernel's minimum
		}
	}
}

func or(own, other int64) int64 {
	if own > 0 {
		return own
	}
	return other
}

// mountVolumes mounts the volumes of the step, the workspace and the volumes of the runner.
func (c *compiler) mountVolumes(s *step, e *stage.ExecuteRequest) error {
	mounted := map[string]bool{}
	for _, m := range s.volumes {
		switch {
		case !c.volumeNames[m.name]:
			continue // As in Drone, a volume that the pipeline does not have is left out.
		case !path.IsAbs(m.path) && !c.platform.windows():
			return s.members["volumes"].errorf("the path %q of the volume %q is not absolute", m.path, m.name)
		case path.Clean(m.path) == "/dlite" || strings.HasPrefix(path.Clean(m.path), "/dlite/"):
			return s.members["volumes"].errorf("the path %q belongs to the driver: choose another path", m.path)
		case mounted[path.Clean(m.path)]:
			return s.members["volumes"].errorf("two volumes have the path %q: change one of them", m.path)
		}
		mounted[path.Clean(m.path)] = true
		e.Volumes = append(e.Volumes, &stage.VolumeMount{Name: m.name, Path: m.path})
	}
	if !mounted[path.Clean(c.base)] {
		e.Volumes = append(e.Volumes, &stage.VolumeMount{Name: stage.WorkspaceVolume, Path: c.base})
	}
	for _, m := range c.runnerMounts {
		// The volume of a step wins, so that its plan is valid.
		if !mounted[path.Clean(m.Path)] {
			e.Volumes = append(e.Volumes, m)
		}
	}
	for _, d := range s.devices {
		if c.volumeNames[d.name] {
			e.Devices = append(e.Devices, &stage.DeviceMount{Name: d.name, DevicePath: d.path})
		}
	}
	return nil
}
