package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// defaultRunAs is the default user of restricted pods. Most images have no user with this
// number.
const defaultRunAs = "65532:65532"

// restrict changes the security contexts to the Pod Security level "restricted". It keeps
// settings that this level allows.
func (c *Config) restrict() error {
	if !c.Restricted {
		if c.RunAs != "" {
			return errors.New("RunAs needs Restricted: set Restricted too, or use SecurityContext")
		}
		return nil
	}
	if c.RunAs == "" {
		c.RunAs = defaultRunAs
	}
	uid, gid, ok := numeric(c.RunAs)
	if !ok || uid == 0 {
		return fmt.Errorf("RunAs: %q must be a numeric uid:gid of a user other than root", c.RunAs)
	}
	c.SecurityContext = restrictedPod(c.SecurityContext, uid, gid)
	c.ContainerSecurityContext = restrictedContainer(c.ContainerSecurityContext)
	return nil
}

func restrictedPod(from *corev1.PodSecurityContext, uid, gid int64) *corev1.PodSecurityContext {
	sc := from.DeepCopy()
	if sc == nil {
		sc = &corev1.PodSecurityContext{}
	}
	yes := true
	sc.RunAsNonRoot, sc.RunAsUser, sc.RunAsGroup = &yes, &uid, &gid
	if sc.FSGroupChangePolicy == nil {
		// Do not change the group of all files for each pod.
		policy := corev1.FSGroupChangeOnRootMismatch
		sc.FSGroupChangePolicy = &policy
	}
	if sc.SeccompProfile == nil || sc.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined {
		sc.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if sc.Sysctls == nil {
		// Without it, only root may listen on ports below 1024.
		sc.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	}
	return sc
}

func restrictedContainer(from *corev1.SecurityContext) *corev1.SecurityContext {
	sc := from.DeepCopy()
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	yes, no := true, false
	sc.RunAsNonRoot, sc.AllowPrivilegeEscalation, sc.Privileged, sc.ProcMount = &yes, &no, nil, nil
	sc.RunAsUser, sc.RunAsGroup = nil, nil // from the pod
	sc.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if sc.SeccompProfile != nil && sc.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined {
		sc.SeccompProfile = nil
	}
	return sc
}

// errRestricted returns the error for a setting that restricted pods do not support.
func errRestricted(what, instead string) error {
	return fmt.Errorf(`%s: the pods are restricted (Pod Security level "restricted"): %s`, what, instead)
}

// allows returns an error for a step that a restricted pod cannot run.
func (d *Driver) allows(step *stage.Step) error {
	if !d.cfg.Restricted {
		return nil
	}
	switch {
	case step.Privileged:
		return errRestricted("it asks for privileged", "leave privileged out, or run the step with a driver that allows it")
	case step.MountDockerSocket:
		return errRestricted("it asks for the Docker socket", "leave it out; images can be built without an engine")
	case step.User == "":
		return nil
	}
	uid, _, ok := numeric(step.User)
	name, _, _ := strings.Cut(step.User, ":")
	switch {
	case ok && uid > 0:
		return nil
	case ok || name == "root":
		return errRestricted("it asks to run as root", "set another numeric user, or none to use "+d.cfg.RunAs)
	}
	return errRestricted(fmt.Sprintf("it asks to run as user %q", step.User),
		"only root can look up a user by name in the image: set numeric ids such as 1000:1000, or no user to use "+d.cfg.RunAs)
}

// allowsVolumes returns an error for a volume that a restricted pod cannot have.
func (d *Driver) allowsVolumes(list []*stage.Volume) error {
	if !d.cfg.Restricted {
		return nil
	}
	for _, v := range list {
		if v != nil && v.Host != nil {
			return errRestricted(fmt.Sprintf("volume %q is a directory of the node", firstOf(v.Host.Name, v.Host.ID)), "use a temp volume or a claim")
		}
	}
	return nil
}

// allowsEnvironment returns an error for a transaction that restricted pods do not support.
func (d *Driver) allowsEnvironment(env *driver.Environment) error {
	if d.cfg.Restricted && env.MountDockerSocket {
		return errRestricted("it asks for the Docker socket", "leave it out; images can be built without an engine")
	}
	return d.allowsVolumes(env.Volumes)
}

// ownClaims gives the files in claims to the group of the user of the pod, which is not
// root. Empty volumes are writable for all users.
func (d *Driver) ownClaims(pod *corev1.Pod) {
	if !d.cfg.Restricted || pod.Spec.SecurityContext.FSGroup != nil {
		return
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			pod.Spec.SecurityContext = pod.Spec.SecurityContext.DeepCopy()
			pod.Spec.SecurityContext.FSGroup = pod.Spec.SecurityContext.RunAsGroup
			return
		}
	}
}

// extraAliases returns the extra hosts of an announced step, if they cannot be added later.
func (d *Driver) extraAliases(step *stage.Step) []corev1.HostAlias {
	if !d.cfg.Restricted {
		return nil
	}
	var list []corev1.HostAlias
	for _, extra := range step.ExtraHosts {
		name, address, ok := extraHost(extra)
		if ok && net.ParseIP(address) != nil && len(validation.IsDNS1123Subdomain(name)) == 0 {
			list = append(list, corev1.HostAlias{IP: address, Hostnames: []string{name}})
		}
	}
	return list
}
