package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/delegate-io/dlite/task/stage"
)

// podSettings are the settings that a stage wants for its pod ([stage.Network.WithPodSettings]).
type podSettings struct {
	ServiceAccount  string                  `json:"serviceAccountName"`
	AutomountToken  *bool                   `json:"automountServiceAccountToken"`
	PriorityClass   string                  `json:"priorityClassName"`
	Labels          map[string]string       `json:"labels"`
	Annotations     map[string]string       `json:"annotations"`
	Tolerations     []corev1.Toleration     `json:"tolerations"`
	SecurityContext *corev1.SecurityContext `json:"containerSecurityContext"`
	HostNames       []string                `json:"hostNames"`
}

// stageSettings are the names of Config.StageSettings.
var stageSettings = []string{
	"serviceAccountName", "automountServiceAccountToken", "priorityClassName", "labels", "annotations", "tolerations", "containerSecurityContext",
}

// mostPodSettings bounds the settings of a stage, in bytes.
const mostPodSettings = 64 << 10

// readPodSettings decodes the settings of a stage.
func readPodSettings(n stage.Network) (*podSettings, error) {
	text := n.PodSettings()
	if len(text) > mostPodSettings {
		return nil, fmt.Errorf("the settings of the pod have %d bytes: at most %d are taken", len(text), mostPodSettings)
	}
	s := &podSettings{}
	if text == "" {
		return s, nil
	}
	strict := json.NewDecoder(bytes.NewReader([]byte(text)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(s); err != nil {
		return nil, fmt.Errorf("the settings of the pod: %w", err)
	}
	for name, list := range map[string]map[string]string{"labels": s.Labels, "annotations": s.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(list)) {
			wrong := validation.IsQualifiedName(key)
			if name == "labels" {
				wrong = append(wrong, validation.IsValidLabelValue(list[key])...)
			}
			if len(wrong) > 0 {
				return nil, fmt.Errorf("the settings of the pod: %s: %q: %s", name, key, strings.Join(wrong, "; "))
			}
		}
	}
	for _, name := range s.HostNames {
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			return nil, fmt.Errorf("the settings of the pod: hostNames: %q: %s", name, strings.Join(wrong, "; "))
		}
	}
	return s, nil
}

// limit removes the settings that the configuration does not allow, and returns a line for the log for each of
// them. allowed has entries of the form NAME or NAME=PATTERN.
func (s *podSettings) limit(allowed []string) []string {
	var lines []string
	permits := func(name, value string) bool {
		for _, entry := range allowed {
			key, pattern, some := strings.Cut(entry, "=")
			if match, err := path.Match(pattern, value); key == name && (!some || err == nil && match) {
				return true
			}
		}
		lines = append(lines, fmt.Sprintf("The delegate does not allow the setting %s: %s of the stage. Its operator can allow it in KUBERNETES_STAGE_SETTINGS.", name, value))
		return false
	}
	if s.ServiceAccount != "" && !permits("serviceAccountName", s.ServiceAccount) {
		s.ServiceAccount = ""
	}
	if s.PriorityClass != "" && !permits("priorityClassName", s.PriorityClass) {
		s.PriorityClass = ""
	}
	if s.AutomountToken != nil && *s.AutomountToken && !permits("automountServiceAccountToken", "true") {
		s.AutomountToken = nil
	}
	for name, list := range map[string]map[string]string{"labels": s.Labels, "annotations": s.Annotations} {
		maps.DeleteFunc(list, func(key, _ string) bool { return !permits(name, key) })
	}
	s.Tolerations = slices.DeleteFunc(s.Tolerations, func(t corev1.Toleration) bool { return !permits("tolerations", t.Key) })
	if s.SecurityContext != nil && !permits("containerSecurityContext", "") {
		s.SecurityContext = nil
	}
	slices.Sort(lines)
	return lines
}

// apply sets the settings on a pod. What the configuration sets has precedence.
func (s *podSettings) apply(pod *corev1.Pod) error {
	if s.ServiceAccount != "" && pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = s.ServiceAccount
		pod.Spec.AutomountServiceAccountToken = nil // the default of the account
	}
	if s.AutomountToken != nil {
		pod.Spec.AutomountServiceAccountToken = s.AutomountToken
	}
	if pod.Spec.PriorityClassName == "" {
		pod.Spec.PriorityClassName = s.PriorityClass
	}
	for _, list := range []struct {
		wanted map[string]string
		of     *map[string]string
	}{{s.Labels, &pod.Labels}, {s.Annotations, &pod.Annotations}} {
		for key, value := range list.wanted {
			if _, ok := (*list.of)[key]; ok {
				continue
			}
			if strings.Contains(key, "dlite") || key == labelManaged {
				return errors.New("the settings of the pod: " + key + " belongs to the driver")
			}
			if *list.of == nil {
				*list.of = map[string]string{}
			}
			(*list.of)[key] = value
		}
	}
	pod.Spec.Tolerations = append(slices.Clone(pod.Spec.Tolerations), s.Tolerations...)
	if len(s.HostNames) > 0 {
		pod.Spec.HostAliases = addAliases(pod.Spec.HostAliases, []corev1.HostAlias{{IP: loopback, Hostnames: s.HostNames}})
	}
	return nil
}

// containerContext returns the security context of the containers of a transaction: the one in the configuration,
// and what a stage adds to it.
func (d *Driver) containerContext(n stage.Network) (*corev1.SecurityContext, error) {
	s, err := readPodSettings(n)
	if err != nil {
		return nil, err
	}
	s.limit(d.cfg.StageSettings)
	if s.SecurityContext == nil {
		return d.cfg.ContainerSecurityContext, nil
	}
	if d.cfg.ContainerSecurityContext == nil {
		return s.SecurityContext, nil
	}
	// The fields of the configuration replace the fields of the stage.
	over, err := json.Marshal(d.cfg.ContainerSecurityContext)
	if err == nil {
		err = json.Unmarshal(over, s.SecurityContext)
	}
	if d.cfg.Restricted && err == nil {
		s.SecurityContext = restrictedContainer(s.SecurityContext)
	}
	return s.SecurityContext, err
}
