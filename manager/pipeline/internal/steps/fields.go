package steps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fields reads the values of a map, for example of a step's spec. It keeps the first error,
// which names the path of the field.
type fields struct {
	path   string
	values map[string]any
	err    *error
}

func newFields(path string, values any) fields {
	var err error
	f := fields{path: path, err: &err}
	switch v := values.(type) {
	case nil:
	case map[string]any:
		f.values = v
	default:
		f.fail("", "must be a map")
	}
	return f
}

// fail remembers the first error.
func (f fields) fail(name, format string, args ...any) {
	if *f.err == nil {
		path := f.path
		if name != "" {
			path += "." + name
		}
		*f.err = fmt.Errorf("%s %w", path, fmt.Errorf(format, args...))
	}
}

func (f fields) has(name string) bool {
	v, ok := f.values[name]
	return ok && v != nil
}

// text returns a scalar as text, or an empty string.
func (f fields) text(name string) string {
	v := f.values[name]
	s, ok := scalarText(v)
	if !ok {
		f.fail(name, "must be a text, not a %s", kindOf(v))
	}
	return s
}

// required returns a text that must not be empty.
func (f fields) required(name string) string {
	s := f.text(name)
	if s == "" {
		f.fail(name, "is required")
	}
	return s
}

func (f fields) boolean(name string, absent bool) bool {
	switch v := f.values[name].(type) {
	case nil:
		return absent
	case bool:
		return v
	case string:
		if v == "" {
			return absent
		}
		if b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(v))); err == nil {
			return b
		}
	}
	f.fail(name, "must be true or false")
	return absent
}

// number returns a whole number of at least 0.
func (f fields) number(name string, absent int) int {
	s := strings.TrimSpace(f.text(name))
	if s == "" {
		return absent
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		f.fail(name, "must be a whole number of at least 0, not %q", s)
	}
	return int(n)
}

// list returns the texts of a list. One text counts as a list of one. An item that is null, for example
// the tag of a build of a branch, is left out.
func (f fields) list(name string) []string {
	switch v := f.values[name].(type) {
	case nil:
		return nil
	case []any:
		all := make([]string, 0, len(v))
		for i, item := range v {
			if item == nil {
				continue
			}
			s, ok := scalarText(item)
			if !ok {
				f.fail(fmt.Sprintf("%s[%d]", name, i), "must be a text, not a %s", kindOf(item))
			}
			all = append(all, s)
		}
		return all
	case map[string]any:
		f.fail(name, "must be a list")
		return nil
	}
	return []string{f.text(name)}
}

// maps returns the maps of a list.
func (f fields) maps(name string) []fields {
	v, ok := f.values[name].([]any)
	if !ok && f.has(name) {
		f.fail(name, "must be a list")
	}
	all := make([]fields, 0, len(v))
	for i, item := range v {
		values, ok := item.(map[string]any)
		if !ok {
			f.fail(fmt.Sprintf("%s[%d]", name, i), "must be a map")
		}
		all = append(all, fields{path: fmt.Sprintf("%s.%s[%d]", f.path, name, i), values: values, err: f.err})
	}
	return all
}

// sub returns the map of a field. An absent field is an empty map.
func (f fields) sub(name string) fields {
	values, ok := f.values[name].(map[string]any)
	if !ok && f.has(name) {
		f.fail(name, "must be a map")
	}
	return fields{path: f.path + "." + name, values: values, err: f.err}
}

// texts returns a map of texts.
func (f fields) texts(name string) map[string]string {
	sub := f.sub(name)
	if len(sub.values) == 0 {
		return nil
	}
	all := make(map[string]string, len(sub.values))
	for key := range sub.values {
		all[key] = sub.text(key)
	}
	return all
}

// only fails for the fields that the caller does not know.
func (f fields) only(known ...string) {
	for _, name := range sortedKeys(f.values) {
		if !slices.Contains(known, name) {
			f.fail(name, "is not supported here; the supported fields are %s", strings.Join(known, ", "))
		}
	}
}

// scalarText returns the text of a scalar, and an empty text for nil.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case int:
		return strconv.Itoa(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

func kindOf(v any) string {
	switch v.(type) {
	case []any:
		return "list"
	case map[string]any:
		return "map"
	}
	return fmt.Sprintf("%T", v)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
