package kubernetes

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/task/stage"
)

// shape describes the container of a step, and the settings of the step that a pod does
// not support.
type shape struct {
	container corev1.Container
	// Only the containers of announced steps can have resources.
	resources corev1.ResourceRequirements
	limited   bool
	shm       int64
	missing   []string
}

// shapeOf creates the container of a step without its name and token. common is the security context of all
// containers.
func (d *Driver) shapeOf(step *stage.Step, volumes map[string]*mountable, socket bool, common *corev1.SecurityContext) (*shape, error) {
	if err := d.allows(step); err != nil {
		return nil, err
	}
	image := firstOf(step.Image, d.cfg.StepImage)
	if step.Plugin != nil && step.Plugin.Builtin != "" {
		image = d.cfg.AgentImage // the agent contains the program, and needs nothing else
	}
	if image == "" {
		return nil, errors.New("it has no image: a step in a pod needs one")
	}
	pull, err := pullPolicy(step.Pull)
	if err != nil {
		return nil, err
	}
	list, err := mounts(step, volumes)
	if err != nil {
		return nil, err
	}
	s := &shape{shm: step.ShmSize}
	s.container = corev1.Container{
		Image: image, ImagePullPolicy: pull, Command: []string{podagent.Program, "step"},
		VolumeMounts:    append(ownMounts(socket), list...),
		SecurityContext: securityContext(step, common),
		// The agent sets the working directory of the step. The runtime would create a
		// missing directory here, owned by root.
		WorkingDir:               "/",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	s.resources, s.limited = d.resourcesOf(step)
	s.addUnsupported(step, socket, d.cfg.Services && step.Detach)
	return s, nil
}

func pullPolicy(wish string) (corev1.PullPolicy, error) {
	switch strings.ToLower(wish) {
	case "", "default":
		return "", nil // the cluster has the same default
	case "always":
		return corev1.PullAlways, nil
	case "ifnotpresent", "if-not-exists":
		return corev1.PullIfNotPresent, nil
	case "never":
		return corev1.PullNever, nil
	}
	return "", fmt.Errorf("pull policy %q is not one of default, Always, IfNotPresent and Never", wish)
}

// securityContext returns the common security context with the settings of the step.
func securityContext(step *stage.Step, common *corev1.SecurityContext) *corev1.SecurityContext {
	sc := &corev1.SecurityContext{}
	if common != nil {
		sc = common.DeepCopy()
	}
	if step.Privileged {
		yes := true
		sc.Privileged, sc.AllowPrivilegeEscalation = &yes, nil
	}
	if uid, gid, ok := numeric(step.User); ok {
		sc.RunAsUser, sc.RunAsGroup = &uid, &gid
	} else if step.User != "" {
		// The agent changes to a user with a name, which only the image can resolve.
		root := int64(0)
		sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot = &root, &root, nil
	}
	return sc
}

// numeric parses "uid[:gid]". Without a gid the group is root's, like in Docker.
func numeric(user string) (uid, gid int64, ok bool) {
	u, g, grouped := strings.Cut(user, ":")
	uid, err := strconv.ParseInt(u, 10, 32)
	if err != nil || uid < 0 {
		return 0, 0, false
	}
	if grouped {
		if gid, err = strconv.ParseInt(g, 10, 32); err != nil || gid < 0 {
			return 0, 0, false
		}
	}
	return uid, gid, true
}

// agentMemory is the memory for the agent in a container with a limit, in bytes. It is
// added to the limit of the step.
const agentMemory = 32 << 20

// resourcesOf returns the resources of a step, or the default ones.
func (d *Driver) resourcesOf(step *stage.Step) (r corev1.ResourceRequirements, limited bool) {
	if step.MemLimit <= 0 && step.CPUQuota <= 0 && step.CPUShares <= 0 {
		return *d.cfg.StepResources.DeepCopy(), false
	}
	r = *d.cfg.StepResources.DeepCopy()
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q *resource.Quantity) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}
	if step.MemLimit > 0 {
		q := resource.NewQuantity(step.MemLimit+agentMemory, resource.BinarySI)
		set(&r.Limits, corev1.ResourceMemory, q)
		lower(r.Requests, corev1.ResourceMemory, q)
	}
	if step.CPUQuota > 0 {
		period := step.CPUPeriod
		if period <= 0 {
			period = 100_000
		}
		q := resource.NewMilliQuantity(max(1, step.CPUQuota*1000/period), resource.DecimalSI)
		set(&r.Limits, corev1.ResourceCPU, q)
		lower(r.Requests, corev1.ResourceCPU, q)
		if _, ok := r.Requests[corev1.ResourceCPU]; !ok && step.CPUShares <= 0 {
			// Without it, the cluster would request the whole limit, unlike Docker.
			set(&r.Requests, corev1.ResourceCPU, resource.NewMilliQuantity(1, resource.DecimalSI))
		}
	}
	if step.CPUShares > 0 {
		q := resource.NewMilliQuantity(max(1, step.CPUShares*1000/1024), resource.DecimalSI)
		if limit, ok := r.Limits[corev1.ResourceCPU]; ok && limit.Cmp(*q) < 0 {
			q = &limit
		}
		set(&r.Requests, corev1.ResourceCPU, q)
	}
	return r, true
}

// lower reduces a request to its limit.
func lower(requests corev1.ResourceList, name corev1.ResourceName, limit *resource.Quantity) {
	if q, ok := requests[name]; ok && q.Cmp(*limit) > 0 {
		requests[name] = *limit
	}
}

// addUnsupported collects the settings of the step that containers of a pod do not support. Service reports whether the
// ports of the step get a Service.
func (s *shape) addUnsupported(step *stage.Step, socket, service bool) {
	for what, wanted := range map[string]bool{
		"devices":                                len(step.Devices) > 0,
		"cpu_set":                                len(step.CPUSet) > 0,
		"memswap_limit":                          step.MemSwapLimit > 0 && step.MemSwapLimit != step.MemLimit,
		"ulimits":                                len(step.Ulimits) > 0,
		"labels":                                 len(step.Labels) > 0,
		"dns":                                    len(step.DNS) > 0 || len(step.DNSSearch) > 0,
		"port_bindings on the node":              bindsOther(step.PortBindings) && !service,
		"the Docker socket":                      step.MountDockerSocket && !socket,
		"networks other than the one of the pod": len(step.Networks) > 0,
	} {
		if wanted {
			s.missing = append(s.missing, what)
		}
	}
}

// bindsOther reports whether a port has another number on the host, which a pod does not
// support.
func bindsOther(ports map[string]string) bool {
	for host, container := range ports {
		if host != strings.TrimSuffix(strings.TrimSuffix(container, "/tcp"), "/udp") {
			return true
		}
	}
	return false
}

// notes returns lines for the log of the step about settings that are ignored.
func (s *shape) notes(announced bool) []string {
	missing := s.missing
	if !announced {
		if s.limited {
			missing = append(missing, "limits of CPU and memory (the step was not announced to the init)")
		}
		if s.shm > 0 {
			missing = append(missing, "shm_size (the step was not announced to the init)")
		}
	}
	var lines []string
	for _, what := range missing {
		lines = append(lines, "A step in a pod cannot have "+what+".")
	}
	return lines
}

// complete sets the name of the container and the token of its agent.
func (s *shape) complete(name, token, grace string) corev1.Container {
	c := *s.container.DeepCopy()
	c.Name = name
	c.Env = []corev1.EnvVar{
		{Name: podagent.EnvContainer, Value: name}, {Name: podagent.EnvToken, Value: podagent.TokenOf(token, name)},
		{Name: podagent.EnvGrace, Value: grace},
	}
	return c
}

// ephemeral converts a container to one that can be added to a running pod.
func ephemeral(c corev1.Container) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Command: c.Command, Args: c.Args, Env: c.Env, WorkingDir: c.WorkingDir,
		VolumeMounts: c.VolumeMounts, SecurityContext: c.SecurityContext, TerminationMessagePolicy: c.TerminationMessagePolicy,
	}}
}
