package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/internal/recorded"
)

// overlayFields are the fields of a pod that podSpecOverlay may set: none of them adds a container, a volume or a
// right.
var overlayFields = []string{"affinity", "dnsConfig", "dnsPolicy", "runtimeClassName", "schedulerName", "topologySpreadConstraints"}

// insteadOfOverlay names what to use for fields of a pod that podSpecOverlay may not set.
var insteadOfOverlay = map[string]string{
	"activeDeadlineSeconds": "the timeout of the stage", "automountServiceAccountToken": "automountServiceAccountToken of the infrastructure",
	"containers": "the image, the resources and the user of the steps", "hostAliases": "hostNames of the infrastructure",
	"initContainers": "a first step", "imagePullSecrets": "the connectorRef of the steps",
	"nodeSelector": "nodeSelector of the infrastructure", "priorityClassName": "priorityClassName of the infrastructure",
	"securityContext": "containerSecurityContext and runAsUser of the infrastructure", "serviceAccountName": "serviceAccountName of the infrastructure",
	"tolerations": "tolerations of the infrastructure", "volumes": "volumes of the infrastructure",
}

// readOverlay decodes the overlay, and notes the fields that it sets.
func (s *podSettings) readOverlay() error {
	if len(s.Overlay) == 0 || bytes.Equal(s.Overlay, []byte("null")) {
		return nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(s.Overlay, &fields); err != nil {
		return fmt.Errorf("podSpecOverlay: %w", err)
	}
	s.overlaid = slices.Sorted(maps.Keys(fields))
	for _, name := range s.overlaid {
		if slices.Contains(overlayFields, name) {
			continue
		}
		instead := "the operator sets other fields for all stages (KUBERNETES_POD_TEMPLATE)"
		if use := insteadOfOverlay[name]; use != "" {
			instead = "use " + use
		}
		return fmt.Errorf("podSpecOverlay: %s is not one of the fields %s: %s", name, strings.Join(overlayFields, ", "), instead)
	}
	if err := decodeStrictly(s.Overlay, &s.overlay); err != nil {
		return fmt.Errorf("podSpecOverlay: %w", err)
	}
	return nil
}

// applyOverlay sets the fields of the overlay that the configuration does not set.
func (s *podSettings) applyOverlay(spec *corev1.PodSpec) {
	over := &s.overlay
	if spec.Affinity == nil {
		spec.Affinity = over.Affinity
	}
	if spec.RuntimeClassName == nil {
		spec.RuntimeClassName = over.RuntimeClassName
	}
	spec.DNSConfig, spec.DNSPolicy, spec.SchedulerName = over.DNSConfig, over.DNSPolicy, over.SchedulerName
	spec.TopologySpreadConstraints = over.TopologySpreadConstraints
}

// checkVolumes checks that the volumes are config maps and secrets.
func (s *podSettings) checkVolumes() error {
	for i, v := range s.Volumes {
		_, name := sourceOf(v)
		switch {
		case v.Name == "" || name == "" || (v.ConfigMap == nil) == (v.Secret == nil) || v.VolumeSource != (corev1.VolumeSource{ConfigMap: v.ConfigMap, Secret: v.Secret}):
			return fmt.Errorf("volumes[%d]: it must have a name, and either a configMap or a secret with a name", i)
		case recorded.IsName(name):
			return fmt.Errorf("volumes[%d]: %q belongs to another stage", i, name)
		}
	}
	return nil
}

// sourceOf returns the name in Config.StageSettings for a volume of a config map or a secret, and the name of its
// object.
func sourceOf(v corev1.Volume) (setting, name string) {
	switch {
	case v.ConfigMap != nil:
		return "configMapVolumes", v.ConfigMap.Name
	case v.Secret != nil:
		return "secretVolumes", v.Secret.SecretName
	}
	return "", ""
}
