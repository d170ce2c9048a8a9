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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// podSettings are the settings that a stage wants for its pod ([stage.Network.WithPodSettings]).
type podSettings struct {
	Namespace       string                  `json:"namespace"`
	InitTimeout     int64                   `json:"initTimeoutSeconds"`
	ServiceAccount  string                  `json:"serviceAccountName"`
	AutomountToken  *bool                   `json:"automountServiceAccountToken"`
	PriorityClass   string                  `json:"priorityClassName"`
	Labels          map[string]string       `json:"labels"`
	Annotations     map[string]string       `json:"annotations"`
	Tolerations     []corev1.Toleration     `json:"tolerations"`
	SecurityContext *corev1.SecurityContext `json:"containerSecurityContext"`
	HostNames       []string                `json:"hostNames"`
	Volumes         []corev1.Volume         `json:"volumes"`
	Overlay         json.RawMessage         `json:"podSpecOverlay"`

	overlay  corev1.PodSpec // of Overlay
	overlaid []string       // the fields that Overlay sets, sorted
}

// stageSettings are the names of Config.StageSettings.
var stageSettings = []string{
	"serviceAccountName", "automountServiceAccountToken", "priorityClassName", "labels", "annotations", "tolerations", "containerSecurityContext",
	"namespace", "initTimeout", "configMapVolumes", "secretVolumes", "podSpecOverlay",
}

// checkStageSetting returns an error for an entry of Config.StageSettings that is not valid.
func checkStageSetting(entry string) error {
	name, pattern, _ := strings.Cut(entry, "=")
	if _, err := path.Match(pattern, ""); err != nil || !slices.Contains(stageSettings, name) {
		return fmt.Errorf("StageSettings: %q is not NAME or NAME=PATTERN with one of the names %s", entry, strings.Join(stageSettings, ", "))
	}
	if name == "namespace" && len(validation.IsDNS1123Label(pattern)) > 0 {
		// The driver searches each namespace for the pods that a crash left.
		return fmt.Errorf("StageSettings: %q must be namespace=NAME with one namespace: write an entry for each", entry)
	}
	return nil
}

// notAllowed is the error for a setting that the stage needs and the operator does not allow.
type notAllowed struct{ setting, value string }

func (e *notAllowed) Error() string {
	return fmt.Sprintf("the delegate does not allow the setting %s: %s of the stage: its operator can allow it in KUBERNETES_STAGE_SETTINGS (%s=%s)", e.setting, e.value, e.setting, e.value)
}

// FailureKind returns the kind of the failure for the answer to the manager.
func (*notAllowed) FailureKind() string { return stage.FailureRefused }

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
	if err := decodeStrictly([]byte(text), s); err != nil {
		return nil, fmt.Errorf("the settings of the pod: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("the settings of the pod: %w", err)
	}
	return s, nil
}

// decodeStrictly decodes JSON and refuses unknown fields.
func decodeStrictly(text []byte, to any) error {
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	return strict.Decode(to)
}

func (s *podSettings) check() error {
	for name, list := range map[string]map[string]string{"labels": s.Labels, "annotations": s.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(list)) {
			wrong := validation.IsQualifiedName(key)
			if name == "labels" {
				wrong = append(wrong, validation.IsValidLabelValue(list[key])...)
			}
			if len(wrong) > 0 {
				return fmt.Errorf("%s: %q: %s", name, key, strings.Join(wrong, "; "))
			}
		}
	}
	for _, name := range s.HostNames {
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			return fmt.Errorf("hostNames: %q: %s", name, strings.Join(wrong, "; "))
		}
	}
	if wrong := validation.IsDNS1123Label(s.Namespace); s.Namespace != "" && len(wrong) > 0 {
		return fmt.Errorf("namespace: %q: %s", s.Namespace, strings.Join(wrong, "; "))
	}
	if s.InitTimeout < 0 || s.InitTimeout > int64(longestInit/time.Second) {
		return fmt.Errorf("initTimeoutSeconds: %d is not between 0 and %d", s.InitTimeout, int64(longestInit/time.Second))
	}
	if err := s.checkVolumes(); err != nil {
		return err
	}
	return s.readOverlay()
}

// longestInit bounds the time in which a stage may ask for its pod.
const longestInit = 7 * 24 * time.Hour

// limit removes the settings that the configuration does not allow, and returns a line for the log for each of
// them. Without some settings a stage would do something else: for those it returns an error. The entries of
// Config.StageSettings have the form NAME or NAME=PATTERN.
func (s *podSettings) limit(cfg *Config) ([]string, error) {
	var lines []string
	allows := func(name, value string) bool {
		return slices.ContainsFunc(cfg.StageSettings, func(entry string) bool {
			key, pattern, some := strings.Cut(entry, "=")
			match, err := path.Match(pattern, value)
			return key == name && (!some || err == nil && match)
		})
	}
	permits := func(name, value string) bool {
		if allows(name, value) {
			return true
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
	if wanted := s.startTimeout(cfg); wanted > cfg.StartTimeout && !permits("initTimeout", wanted.String()) {
		s.InitTimeout = 0
	}
	slices.Sort(lines)
	return lines, s.allowed(cfg, allows)
}

// allowed returns an error for a setting that the stage needs and the configuration does not allow.
func (s *podSettings) allowed(cfg *Config, allows func(name, value string) bool) error {
	if s.Namespace != "" && s.Namespace != cfg.Namespace && !allows("namespace", s.Namespace) {
		return fmt.Errorf("%w, with the permissions of the delegate in that namespace; without namespace the pod is in %s", &notAllowed{"namespace", s.Namespace}, cfg.Namespace)
	}
	for _, v := range s.Volumes {
		setting, name := sourceOf(v)
		if !allows(setting, name) {
			return &notAllowed{setting, name}
		}
	}
	for _, field := range s.overlaid {
		if !allows("podSpecOverlay", field) {
			return &notAllowed{"podSpecOverlay", field}
		}
	}
	return nil
}

// settings returns the settings of a transaction that the configuration allows, and lines for its log about the others.
func (d *Driver) settings(n stage.Network) (*podSettings, []string, error) {
	s, err := readPodSettings(n)
	if err != nil {
		return nil, nil, err
	}
	lines, err := s.limit(&d.cfg)
	return s, lines, err
}

// namespaceOf returns the namespace of the pod of a stage.
func (s *podSettings) namespaceOf(cfg *Config) string { return firstOf(s.Namespace, cfg.Namespace) }

// startTimeout returns the time in which the pod must run.
func (s *podSettings) startTimeout(cfg *Config) time.Duration {
	if s.InitTimeout == 0 {
		return cfg.StartTimeout
	}
	return time.Duration(s.InitTimeout) * time.Second
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
	s.applyOverlay(&pod.Spec)
	return nil
}

// containerContext returns the security context of the containers of a transaction: the one in the configuration
// with the additions of the stage.
func (d *Driver) containerContext(s *podSettings) (*corev1.SecurityContext, error) {
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

// volumesOf returns the volumes of a transaction, see [volumesOf], with those of the settings.
func (d *Driver) volumesOf(env *driver.Environment, s *podSettings) (map[string]*mountable, []corev1.Volume, error) {
	byName, volumes, err := volumesOf(env.Volumes)
	if err != nil {
		return nil, nil, err
	}
	for i, v := range s.Volumes {
		if byName[v.Name] != nil {
			return nil, nil, fmt.Errorf("the settings of the pod: volumes[%d]: the name %q is in use", i, v.Name)
		}
		m := &mountable{volume: v, readOnly: true}
		m.volume.Name = fmt.Sprintf("s%d", i)
		byName[v.Name] = m
		volumes = append(volumes, m.volume)
	}
	return byName, volumes, nil
}
