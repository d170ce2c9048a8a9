package steps

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// podSettings returns the settings of a KubernetesDirect infrastructure for its pod as JSON, or an empty text.
// The delegate takes those that its operator allows. volumes are the config maps and secrets among the volumes.
func podSettings(f fields, volumes []map[string]any) (string, error) {
	settings := map[string]any{}
	keepTexts(settings, f, "namespace", "serviceAccountName", "priorityClassName")
	if limit := initTimeout(f); limit > 0 {
		settings["initTimeoutSeconds"] = int64(limit.Seconds())
	}
	if over := podOverlay(f); len(over) > 0 {
		settings["podSpecOverlay"] = over
	}
	if len(volumes) > 0 {
		settings["volumes"] = volumes
	}
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

// initTimeout returns the time-out of the init that an infrastructure names, or 0.
func initTimeout(f fields) time.Duration {
	limit, err := definition.ParseTimeout(f.text("initTimeout"))
	if err != nil {
		f.fail("initTimeout", "%w", err)
	}
	return limit
}

// podOverlay returns the fields of podSpecOverlay, which is YAML of a pod or of its spec.
func podOverlay(f fields) map[string]any {
	over := f.values["podSpecOverlay"]
	if text, ok := over.(string); ok {
		var err error
		if text == "" {
			return nil
		}
		if over, err = definition.ParseValue(text); err != nil {
			f.fail("podSpecOverlay", "is not YAML: %w", err)
			return nil
		}
	}
	if over == nil {
		return nil
	}
	of := fields{path: f.path, values: map[string]any{"podSpecOverlay": over}, err: f.err}.sub("podSpecOverlay")
	if of.has("spec") {
		of.only("apiVersion", "kind", "spec")
		of = of.sub("spec")
	}
	return of.values
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
