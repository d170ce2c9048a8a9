package yaml

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readSettings reads the settings of a plugin. One that is null is left out.
func readSettings(v value) ([]setting, error) {
	members, err := v.members()
	if err != nil {
		return nil, err
	}
	var list []setting
	for _, m := range members {
		if m.value.isNull() {
			continue
		}
		if m.key == "" || strings.ContainsAny(m.key, "=\x00") {
			return nil, m.value.errorf("the name %q of a setting is not valid", m.key)
		}
		one := setting{name: "PLUGIN_" + strings.ToUpper(m.key)}
		if one.secret, err = secretOf(m.value); err != nil {
			return nil, err
		}
		if one.secret == "" {
			if one.value, err = encode(m.value); err != nil {
				return nil, err
			}
		}
		list = append(list, one)
	}
	return list, nil
}

// secretOf returns the secret that a map names, or an empty string.
func secretOf(v value) (string, error) {
	if !v.isMap() {
		return "", nil
	}
	return v.member("from_secret")
}

// encode returns a setting as text: a scalar as it is, a list of scalars joined by commas,
// and anything else as JSON.
func encode(v value) (string, error) {
	plain, err := v.plain()
	if err != nil {
		return "", err
	}
	if list, ok := plain.([]any); ok {
		if text, ok := joined(list); ok {
			return text, nil
		}
	}
	return encodeScalar(plain, v)
}

func encodeScalar(plain any, v value) (string, error) {
	switch x := plain.(type) {
	case nil:
		return "", nil
	case string:
		return x, nil
	case bool:
		return strconv.FormatBool(x), nil
	case int64:
		return strconv.FormatInt(x, 10), nil
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), nil
	}
	b, err := json.Marshal(plain)
	if err != nil {
		return "", v.wrap(err)
	}
	return string(b), nil
}

// joined returns the scalars of a list with commas. It returns false if the list has others.
func joined(list []any) (string, bool) {
	var parts []string
	for _, item := range list {
		switch item.(type) {
		case []any, map[string]any:
			return "", false
		}
		text, _ := encodeScalar(item, value{})
		parts = append(parts, text)
	}
	return strings.Join(parts, ","), true
}

// plain returns the value as nil, bool, int64, float64, string, []any or map[string]any.
func (v value) plain() (any, error) {
	v.path = "" // paths of deep values would be long
	switch {
	case v.isList():
		items, err := v.items()
		if err != nil {
			return nil, err
		}
		list := make([]any, len(items))
		for i, item := range items {
			if list[i], err = item.plain(); err != nil {
				return nil, err
			}
		}
		return list, nil
	case v.isMap():
		members, err := v.members()
		if err != nil {
			return nil, err
		}
		all := make(map[string]any, len(members))
		for _, m := range members {
			if all[m.key], err = m.value.plain(); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return scalar(v.content()), nil
}

// scalar resolves a scalar as YAML 1.1 does, which Drone reads: yes and on are true, and 0755
// is octal.
func scalar(n *yaml.Node) any {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&quoted != 0 || n.ShortTag() == "!!str" && n.Style&yaml.TaggedStyle != 0 {
		return n.Value
	}
	if n.ShortTag() == "!!null" {
		return nil
	}
	if b, ok := yaml11Bool(n.Value); ok {
		return b
	}
	digits := strings.ReplaceAll(n.Value, "_", "")
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return i
	}
	if tag := n.ShortTag(); tag == "!!float" || tag == "!!int" {
		if f, err := strconv.ParseFloat(digits, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	}
	return n.Value
}
