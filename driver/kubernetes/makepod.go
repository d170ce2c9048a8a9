package kubernetes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	hubContainer     = podagent.HubContainer
	installContainer = "install"
	cloneContainer   = "clone"
	// program is the path of the agent in its image.
	program = "/agent"
)

const (
	labelManaged = "app.kubernetes.io/managed-by"
	managed      = "dlite"
	// annotationSteps maps the names of waiting containers to the announced steps.
	annotationSteps = "io.dlite.steps"
)

// waiting is a container that waits for an announced step.
type waiting struct {
	Step string `json:"step"`
	// Shape is the fingerprint of the announced step, to detect changes.
	Shape string `json:"shape"`
}

// draft has the input of makePod.
type draft struct {
	name, token string
	env         *driver.Environment
	// notes are lines for the log of the init. makePod sets them.
	notes []string
}

// makePod returns the pod of a transaction, with the template merged into it.
func (d *Driver) makePod(t *draft) (*corev1.Pod, error) {
	if err := d.allowsEnvironment(t.env); err != nil {
		return nil, err
	}
	settings, notes, err := d.settings(t.env.Network)
	if err != nil {
		return nil, err
	}
	t.notes = notes
	byName, volumes, err := d.volumesOf(t.env, settings)
	if err != nil {
		return nil, err
	}
	node, err := d.nodeSelector(t.env)
	if err != nil {
		return nil, err
	}
	no, linger := false, int64((d.cfg.Grace+2*time.Second-1)/time.Second)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: t.name, Namespace: settings.namespaceOf(&d.cfg), Labels: maps.Clone(d.cfg.Labels), Annotations: maps.Clone(d.cfg.Annotations),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &linger,
			EnableServiceLinks:            &no,
			ServiceAccountName:            d.cfg.ServiceAccount,
			NodeSelector:                  node,
			Tolerations:                   d.cfg.Tolerations,
			Affinity:                      d.cfg.Affinity,
			PriorityClassName:             d.cfg.PriorityClass,
			SecurityContext:               d.cfg.SecurityContext,
			ImagePullSecrets:              []corev1.LocalObjectReference{{Name: t.name}},
			Volumes:                       append(d.ownVolumes(t.env.MountDockerSocket), volumes...),
			InitContainers: []corev1.Container{{
				Name: installContainer, Image: d.cfg.AgentImage, Command: []string{program, "install", podagent.BinDir},
				VolumeMounts:    []corev1.VolumeMount{{Name: volumeBin, MountPath: podagent.BinDir}},
				SecurityContext: d.cfg.ContainerSecurityContext, Resources: d.cfg.HubResources,
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
			Containers: []corev1.Container{d.hub(t, volumes)},
		},
	}
	d.ownClaims(pod)
	if d.cfg.ServiceAccount == "" {
		pod.Spec.AutomountServiceAccountToken = &no
	}
	if d.cfg.RuntimeClass != "" {
		pod.Spec.RuntimeClassName = &d.cfg.RuntimeClass
	}
	if d.cfg.Lifetime > 0 {
		seconds := max(1, int64(d.cfg.Lifetime/time.Second))
		pod.Spec.ActiveDeadlineSeconds = &seconds
	}
	for _, name := range d.cfg.ImagePullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if err := d.addWaiting(pod, t, byName, settings); err != nil {
		return nil, err
	}
	if err := settings.apply(pod); err != nil {
		return nil, err
	}
	label(&pod.ObjectMeta, t.env)
	if d.cfg.Services {
		pod.Labels[labelPod] = pod.Name
	}
	made, err := d.overlay(pod)
	if err != nil {
		return nil, fmt.Errorf("PodTemplate: %w", err)
	}
	return made, nil
}

// hub returns the container of the hub. It mounts all volumes of the transaction, so that a
// volume that cannot be mounted fails the init: nodes only mount volumes that a container
// uses.
func (d *Driver) hub(t *draft, volumes []corev1.Volume) corev1.Container {
	c := corev1.Container{
		Name: hubContainer, Image: d.cfg.AgentImage, Command: []string{podagent.Program, "hub"},
		Env: []corev1.EnvVar{{Name: podagent.EnvToken, Value: t.token}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeBin, MountPath: podagent.BinDir}, {Name: volumeControl, MountPath: podagent.ControlDir},
			{Name: volumeWork, MountPath: podagent.WorkDir}, {Name: volumeMemory, MountPath: podagent.MemoryDir},
			{Name: volumeWorkspace, MountPath: podagent.Workspace},
		},
		SecurityContext: d.cfg.ContainerSecurityContext, Resources: d.cfg.HubResources, WorkingDir: "/",
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	for _, v := range volumes {
		if v.EmptyDir == nil {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/dlite/volumes/" + v.Name, ReadOnly: true})
		}
	}
	return c
}

// addWaiting adds the containers that wait for the announced steps, and one for the clone if
// it needs another image.
func (d *Driver) addWaiting(pod *corev1.Pod, t *draft, volumes map[string]*mountable, settings *podSettings) error {
	if t.env.Clone != nil && d.cfg.GitImage != d.cfg.AgentImage {
		s, err := d.shapeOf(&stage.Step{Image: d.cfg.GitImage}, nil, false, d.cfg.ContainerSecurityContext)
		if err != nil {
			return err
		}
		pod.Spec.Containers = append(pod.Spec.Containers, s.complete(cloneContainer, t.token, "0s"))
	}
	common, err := d.containerContext(settings)
	if err != nil {
		return err
	}
	list := map[string]waiting{}
	for i, step := range t.env.Steps {
		if step == nil {
			continue
		}
		s, err := d.shapeOf(step, volumes, t.env.MountDockerSocket, common)
		if err != nil {
			continue // Execute returns the error
		}
		name := "w" + strconv.Itoa(i) + "-" + recorded.Slug(firstOf(step.ID, step.Name), slugLength)
		c := s.complete(name, t.token, d.cfg.Grace.String())
		c.Resources = s.resources
		if s.shm > 0 {
			shm := corev1.Volume{Name: "dlite-shm-" + strconv.Itoa(i), VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(true, s.shm)}}
			pod.Spec.Volumes = append(pod.Spec.Volumes, shm)
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: shm.Name, MountPath: "/dev/shm"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		list[name] = waiting{Step: step.ID, Shape: s.fingerprint()}
		pod.Spec.HostAliases = addAliases(pod.Spec.HostAliases, append(aliases(step), d.extraAliases(step)...))
	}
	if len(list) == 0 {
		return nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotationSteps] = string(b)
	return nil
}

// aliases returns the names of an announced background step. As aliases of the pod, they are
// also in the hosts file after the node has replaced it.
func aliases(step *stage.Step) []corev1.HostAlias {
	names := serviceNames(step)
	if !step.Detach || len(names) == 0 {
		return nil
	}
	a := corev1.HostAlias{IP: loopback}
	for _, name := range names {
		a.Hostnames = append(a.Hostnames, hostName(name))
	}
	return []corev1.HostAlias{a}
}

// addAliases adds names to a list that has each address once. Kubernetes warns about others.
func addAliases(list, more []corev1.HostAlias) []corev1.HostAlias {
	for _, a := range more {
		i := slices.IndexFunc(list, func(old corev1.HostAlias) bool { return old.IP == a.IP })
		if i < 0 {
			list = append(list, a)
			continue
		}
		list[i].Hostnames = append(list[i].Hostnames, a.Hostnames...)
	}
	return list
}

// fingerprint returns a hash of the shape.
func (s *shape) fingerprint() string {
	b, err := json.Marshal([]any{s.container, s.resources, s.shm})
	if err != nil {
		return "" // equal to no stored fingerprint
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// label sets the labels of the transaction on an object. Labels in a cluster allow only few
// characters, so their values are hashes, and annotations have the original values.
func label(o *metav1.ObjectMeta, env *driver.Environment) {
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Labels[labelManaged] = managed
	for k, v := range labelsOf(env) {
		if len(validation.IsQualifiedName(k)) == 0 {
			o.Labels[k], o.Annotations[k] = labelValue(v), v
		}
	}
}

func labelsOf(env *driver.Environment) map[string]string {
	labels := maps.Clone(env.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[driver.LabelTransaction] = env.ID
	return labels
}

// overlay merges the template into pod, and checks that the result still has the parts that
// the driver needs.
func (d *Driver) overlay(pod *corev1.Pod) (*corev1.Pod, error) {
	if len(d.cfg.PodTemplate) == 0 {
		return pod, nil
	}
	b, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	if b, err = strategicpatch.StrategicMergePatch(b, d.cfg.PodTemplate, corev1.Pod{}); err != nil {
		return nil, err
	}
	merged := &corev1.Pod{}
	// Without this check, misspelt fields would be ignored.
	strict := json.NewDecoder(bytes.NewReader(b))
	strict.DisallowUnknownFields()
	if err := strict.Decode(merged); err != nil {
		return nil, err
	}
	return merged, essential(pod, merged)
}

// essential checks that merged has the parts of made that the driver needs.
func essential(made, merged *corev1.Pod) error {
	switch {
	case merged.Name != made.Name || merged.Namespace != made.Namespace:
		return errors.New("the template must not change the name and the namespace of the pod")
	case merged.Spec.RestartPolicy != corev1.RestartPolicyNever:
		return errors.New("restartPolicy must be Never")
	case merged.Spec.ShareProcessNamespace != nil && *merged.Spec.ShareProcessNamespace:
		return errors.New("shareProcessNamespace must not be true: each step needs a separate process namespace")
	}
	for k, v := range made.Labels {
		if merged.Labels[k] != v {
			return fmt.Errorf("the template must not change the label %s", k)
		}
	}
	for k, v := range made.Annotations {
		if merged.Annotations[k] != v {
			return fmt.Errorf("the template must not change the annotation %s", k)
		}
	}
	volumes := map[string]bool{}
	for _, v := range merged.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, v := range made.Spec.Volumes {
		if !volumes[v.Name] {
			return fmt.Errorf("the volume %s is missing", v.Name)
		}
	}
	if err := sameContainers(made.Spec.InitContainers, merged.Spec.InitContainers); err != nil {
		return err
	}
	return sameContainers(made.Spec.Containers, merged.Spec.Containers)
}

// sameContainers checks the parts of the containers that the agents need.
func sameContainers(made, merged []corev1.Container) error {
	byName := map[string]corev1.Container{}
	for _, c := range merged {
		byName[c.Name] = c
	}
	for _, c := range made {
		m, ok := byName[c.Name]
		if !ok {
			return fmt.Errorf("the container %s is missing", c.Name)
		}
		if fmt.Sprint(m.Command, m.Args) != fmt.Sprint(c.Command, c.Args) {
			return fmt.Errorf("container %s: the template must not change the command", c.Name)
		}
		at := map[string]string{}
		for _, v := range m.VolumeMounts {
			at[v.MountPath] = v.Name
		}
		for _, v := range c.VolumeMounts {
			if at[v.MountPath] != v.Name {
				return fmt.Errorf("container %s: %s is not mounted at %s", c.Name, v.Name, v.MountPath)
			}
		}
		env := map[string]string{}
		for _, v := range m.Env {
			env[v.Name] = v.Value
		}
		for _, v := range c.Env {
			if env[v.Name] != v.Value {
				return fmt.Errorf("container %s: the template must not change the variable %s", c.Name, v.Name)
			}
		}
	}
	return nil
}
