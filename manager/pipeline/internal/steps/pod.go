package steps

import (
	"encoding/json"
	"fmt"
)

// podSettings returns the settings of a KubernetesDirect infrastructure for its pod as JSON, or an empty text.
// The delegate takes those that its operator allows.
func podSettings(f fields) (string, error) {
	settings := map[string]any{}
	keepTexts(settings, f, "serviceAccountName", "priorityClassName")
	keepBooleans(settings, f, "automountServiceAccountToken")
	for _, name := range []string{"labels", "annotations"} {
		if texts := f.texts(name); len(texts) > 0 {
			settings[name] = texts
		}
	}
	if names := f.list("hostNames"); len(names) > 0 {
		settings["hostNames"] = names
	}
	var tolerations []map[string]any
	for _, t := range f.maps("tolerations") {
		one := map[string]any{}
		keepTexts(one, t, "key", "operator", "value", "effect")
		keepNumbers(one, t, "tolerationSeconds")
		t.only("key", "operator", "value", "effect", "tolerationSeconds")
		tolerations = append(tolerations, one)
	}
	if len(tolerations) > 0 {
		settings["tolerations"] = tolerations
	}
	if security := securitySettings(f.sub("containerSecurityContext")); len(security) > 0 {
		settings["containerSecurityContext"] = security
	}
	if *f.err != nil || len(settings) == 0 {
		return "", *f.err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return "", fmt.Errorf("encoding the settings of the pod: %w", err)
	}
	return string(text), nil
}

func securitySettings(f fields) map[string]any {
	settings := map[string]any{}
	keepBooleans(settings, f, "allowPrivilegeEscalation", "privileged", "readOnlyRootFilesystem", "runAsNonRoot")
	keepNumbers(settings, f, "runAsUser", "runAsGroup")
	keepTexts(settings, f, "procMount")
	capabilities := map[string]any{}
	for _, name := range []string{"add", "drop"} {
		if list := f.sub("capabilities").list(name); len(list) > 0 {
			capabilities[name] = list
		}
	}
	if len(capabilities) > 0 {
		settings["capabilities"] = capabilities
	}
	f.only("allowPrivilegeEscalation", "privileged", "readOnlyRootFilesystem", "runAsNonRoot", "runAsUser", "runAsGroup", "procMount", "capabilities")
	return settings
}

func keepTexts(to map[string]any, f fields, names ...string) {
	for _, name := range names {
		if value := f.text(name); value != "" {
			to[name] = value
		}
	}
}

func keepBooleans(to map[string]any, f fields, names ...string) {
	for _, name := range names {
		if f.has(name) && f.values[name] != "" {
			to[name] = f.boolean(name, false)
		}
	}
}

func keepNumbers(to map[string]any, f fields, names ...string) {
	for _, name := range names {
		if f.text(name) != "" {
			to[name] = f.number(name, 0)
		}
	}
}
