package steps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Plugin is a step type that runs an image with settings.
type Plugin struct {
	// Image is the image, and PodImage the one in pods, if it is another.
	Image    string `json:"image" yaml:"image"`
	PodImage string `json:"pod_image" yaml:"pod_image"`
	// Settings say which fields of the spec become which variables.
	Settings []Setting `json:"settings" yaml:"settings"`
	// Fixed are variables with constant values. {name} is replaced by the field of the spec, and
	// {timeout} by the time-out of the step.
	Fixed map[string]string `json:"fixed" yaml:"fixed"`
	// Connector is the kind of the connector in connectorRef, or empty.
	Connector string `json:"connector" yaml:"connector"`
	// Privileged runs the container with all rights of the machine, outside pods.
	Privileged bool `json:"privileged" yaml:"privileged"`
	// builtin types have a table of keys in package definition, which has warned of the other
	// keys.
	builtin bool
	// program is the work of the storage program: such a type needs no image. ofStage types are those
	// of the cache of the stage.
	// inCache types use the bucket of the cache in the settings.
	program          string
	ofStage, inCache bool
}

// Setting is one variable of a Plugin.
type Setting struct {
	// Field is the field of the spec, and Variable the variable without the prefix PLUGIN_. A
	// setting without a variable is only for Fixed.
	Field    string `json:"field" yaml:"field"`
	Variable string `json:"variable" yaml:"variable"`
	// Format is text (the default), list (joined by commas), pairs (a=b, joined by commas),
	// lower (text in lower case) or json.
	Format   string `json:"format" yaml:"format"`
	Required bool   `json:"required" yaml:"required"`
	// Pods limits the setting to pods, Outside to everything else.
	Pods    bool `json:"pods" yaml:"pods"`
	Outside bool `json:"outside" yaml:"outside"`
	// Value is the constant value of the variable if Field is set, and is not false.
	Value string `json:"value" yaml:"value"`
}

// pluginFields are the fields that every plugin step may have beside its settings.
var pluginFields = []string{
	"connectorRef", "registryRef", "image", "imagePullPolicy", "envVariables", "privileged", "runAsUser", "resources", "reports", "outputVariables",
	"baseImageConnectorRefs", "shell", "entrypoint", "settings",
}

func (p Plugin) check(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, " \t\n"):
		return fmt.Errorf("types has the name %q: a step type has a name without blanks", name)
	case isRun(name) || name == "Plugin" || name == "Background" || name == "GitClone":
		return fmt.Errorf("types.%s: this type cannot be replaced", name)
	case p.Image == "":
		return fmt.Errorf("types.%s.image is required", name)
	}
	kinds := []string{"", GitConnector, RegistryConnector, AWSConnector, GCPConnector, ArtifactoryConnector}
	if !slices.Contains(kinds, p.Connector) {
		return fmt.Errorf("types.%s.connector is %q: use one of %s", name, p.Connector, strings.Join(kinds[1:], ", "))
	}
	for i, s := range p.Settings {
		if s.Field == "" {
			return fmt.Errorf("types.%s.settings[%d].field is required", name, i)
		}
		if !slices.Contains([]string{"", "text", "list", "pairs", "lower", "json"}, s.Format) {
			return fmt.Errorf("types.%s.settings[%d].format is %q: use text, list, pairs, lower or json", name, i, s.Format)
		}
	}
	return nil
}

// variables returns the PLUGIN_ variables of a spec.
func (p Plugin) variables(t *Table, f fields, pods bool, timeoutSeconds int) map[string]string {
	env := map[string]string{}
	known := slices.Clone(pluginFields)
	for _, s := range p.Settings {
		known = append(known, s.Field)
		if s.Pods && !pods || s.Outside && pods {
			continue
		}
		value := s.read(f)
		if value == "" && s.Required {
			f.fail(s.Field, "is required")
		}
		if value != "" && s.Variable != "" {
			env["PLUGIN_"+s.Variable] = value
		}
	}
	if !p.builtin {
		f.only(known...)
	}
	if p.Connector != "" {
		p.addCredentials(t, f, env)
	}
	for name, value := range p.Fixed {
		env["PLUGIN_"+name] = p.fill(value, f, timeoutSeconds)
	}
	return env
}

// fill replaces the names in braces of a fixed value.
func (p Plugin) fill(value string, f fields, timeoutSeconds int) string {
	pairs := []string{"{timeout}", fmt.Sprintf("%ds", timeoutSeconds)}
	for _, s := range p.Settings {
		pairs = append(pairs, "{"+s.Field+"}", strings.Trim(s.read(f), "/"))
	}
	return strings.NewReplacer(pairs...).Replace(value)
}

func (s Setting) read(f fields) string {
	switch {
	case s.Value != "":
		if v, ok := f.values[s.Field]; !ok || v == nil || v == "" || v == false || v == "false" {
			return ""
		}
		return s.Value
	case s.Format == "list":
		return strings.Join(f.list(s.Field), ",")
	case s.Format == "pairs":
		texts := f.texts(s.Field)
		var pairs []string
		for _, key := range sortedKeys(texts) {
			pairs = append(pairs, key+"="+texts[key])
		}
		return strings.Join(pairs, ",")
	case s.Format == "lower":
		return strings.ToLower(f.text(s.Field))
	case s.Format == jsonListFormat && f.has(s.Field):
		return jsonList(f.list(s.Field))
	case s.Format == "json" && f.has(s.Field):
		return settingText(f.values[s.Field])
	}
	return f.text(s.Field)
}

// addCredentials adds the variables of the connector. Their values are references.
func (p Plugin) addCredentials(t *Table, f fields, env map[string]string) {
	c, ok := t.connector(f, p.Connector)
	if !ok {
		return
	}
	set := func(name, value string) {
		if value != "" {
			env["PLUGIN_"+name] = value
		}
	}
	switch p.Connector {
	case RegistryConnector:
		set("USERNAME", c.user())
		set("PASSWORD", secretRef(c.PasswordSecret))
		set("REGISTRY", c.URL)
	case AWSConnector:
		set("ACCESS_KEY", secretRef(c.AccessKeySecret))
		set("SECRET_KEY", secretRef(c.SecretKeySecret))
		set("ASSUME_ROLE", c.AssumeRole)
		set("EXTERNAL_ID", c.ExternalID)
	case GCPConnector:
		if p.program != "" {
			set("ACCESS_KEY", secretRef(c.AccessKeySecret))
			set("SECRET_KEY", secretRef(c.SecretKeySecret))
			return
		}
		set("JSON_KEY", secretRef(c.KeySecret))
	case ArtifactoryConnector:
		set("URL", c.URL)
		set("USERNAME", c.user())
		set("PASSWORD", secretRef(c.PasswordSecret))
	}
}

// pluginSettings returns the variables of the free settings of a Plugin step: lists of
// scalars are joined by commas, everything else that is no scalar is JSON.
func pluginSettings(f fields) map[string]string {
	settings := f.sub("settings")
	env := map[string]string{}
	for _, key := range sortedKeys(settings.values) {
		v := settings.values[key]
		if v == nil {
			continue
		}
		env["PLUGIN_"+strings.ToUpper(key)] = settingText(v)
	}
	return env
}

// jsonListFormat is the format of lists whose items may hold commas, for types without an image.
const jsonListFormat = "json-list"

func jsonList(items []string) string {
	b, err := json.Marshal(items)
	if err != nil { // texts can be encoded
		return "[]"
	}
	return string(b)
}

func settingText(v any) string {
	if s, ok := scalarText(v); ok {
		return s
	}
	if list, ok := v.([]any); ok {
		texts := make([]string, 0, len(list))
		for _, item := range list {
			if item == nil {
				continue // for example the tag of a build of a branch
			}
			s, ok := scalarText(item)
			if !ok {
				texts = nil
				break
			}
			texts = append(texts, s)
		}
		if texts != nil {
			return strings.Join(texts, ",")
		}
	}
	b, err := json.Marshal(v)
	if err != nil { // rendered values are plain
		return fmt.Sprint(v)
	}
	return string(b)
}
