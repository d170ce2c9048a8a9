package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ohler55/ojg/jp"
)

const maxPath = 1000 // bytes

// jsonSelect returns the text at a path: a text as it is, other values as JSON.
func jsonSelect(ev *evaluation, args []any) (any, error) {
	v, _, err := ev.selectJSON(args)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string, bool, int64, float64:
		return ev.made(scalar(v))
	}
	return ev.jsonText(v, "")
}

// jsonObject returns the value at a path, or the whole value if there is no path.
func jsonObject(ev *evaluation, args []any) (any, error) {
	if len(args) == 1 {
		return ev.jsonData(args[0])
	}
	v, _, err := ev.selectJSON(args)
	return v, err
}

// jsonList returns the list at a path.
func jsonList(ev *evaluation, args []any) (any, error) {
	v, path, err := ev.selectJSON(args)
	if _, ok := v.([]any); !ok && err == nil {
		return nil, fmt.Errorf("the value at %s is %s and not a list", path, typeName(v))
	}
	return v, err
}

// jsonFormat returns a value as JSON with line breaks. A text that is JSON is formatted too.
func jsonFormat(ev *evaluation, args []any) (any, error) {
	v := args[0]
	if text, ok := v.(string); ok {
		if data, err := ev.jsonData(text); err == nil {
			v = data
		}
	}
	return ev.jsonText(v, "  ")
}

// jsonText returns the JSON of a value.
func (ev *evaluation) jsonText(v any, indent string) (any, error) {
	v, err := ev.simple(v, 0)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, errors.New("the value has a number that JSON does not have")
	}
	return ev.made(strings.TrimSuffix(b.String(), "\n"))
}

// reserve counts memory that is not one text.
func (ev *evaluation) reserve(n int) error {
	ev.limits.Bytes -= n
	return ev.spend(0)
}

// simple returns a value with all of its items converted. It counts them, so that work on the
// result is bounded.
func (ev *evaluation) simple(v any, level int) (any, error) {
	if err := ev.step(1); err != nil {
		return nil, err
	}
	if level > maxLevels {
		return nil, fmt.Errorf("a value is nested more than %d deep", maxLevels)
	}
	v, err := ev.use(v, "an item")
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case []any:
		if err := ev.reserve(16 * len(v)); err != nil {
			return nil, err
		}
		items := make([]any, len(v))
		for i, item := range v {
			if items[i], err = ev.simple(item, level+1); err != nil {
				return nil, err
			}
		}
		return items, nil
	case map[string]any:
		if err := ev.reserve(64 * len(v)); err != nil {
			return nil, err
		}
		m := make(map[string]any, len(v))
		for k, item := range v {
			if m[k], err = ev.simple(item, level+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	case string:
		return v, ev.reserve(len(v))
	case moment:
		return v.String(), nil
	case Secret, *mixed:
		return nil, errSecret
	case Object:
		return nil, errors.New("the value is a map of the run: name one of its members")
	}
	return v, nil
}

// jsonData returns the value of a JSON text. Another value stays as it is.
func (ev *evaluation) jsonData(v any) (any, error) {
	text, ok := v.(string)
	if !ok {
		return ev.simple(v, 0)
	}
	if err := ev.spend(len(text)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var data any
	if err := d.Decode(&data); err != nil {
		return nil, fmt.Errorf("the text is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the text is not JSON: data follows the value")
	}
	return ev.simple(data, 0)
}

// selectJSON returns the value at the path args[0] of args[1], and the path.
func (ev *evaluation) selectJSON(args []any) (any, string, error) {
	path, err := ev.scalarText(args[0], "the path")
	if err != nil {
		return nil, path, err
	}
	expr, definite, err := parsePath(path)
	if err != nil {
		return nil, path, err
	}
	data, err := ev.jsonData(args[1])
	if err != nil {
		return nil, path, err
	}
	found := expr.Get(data)
	if !definite {
		if found == nil {
			found = []any{}
		}
		return found, path, ev.reserve(16 * len(found))
	}
	if len(found) == 0 {
		return nil, path, &Error{Text: fmt.Sprintf("the JSON has no value at %s", shorten(path, 100)), Unresolved: true}
	}
	return found[0], path, nil
}

// parsePath parses a JSONPath. The "$." at its begin may be left out. Each search of all levels
// and each filter multiplies the work, so that a path has few of them. definite reports that the
// path leads to one value.
func parsePath(path string) (expr jp.Expr, definite bool, err error) {
	rest := strings.TrimSpace(path)
	if len(rest) > maxPath {
		return nil, false, fmt.Errorf("the path has more than %d characters", maxPath)
	}
	rest = strings.TrimPrefix(rest, "$")
	expr, definite = jp.R(), true
	searches, filters := 0, 0
	for rest != "" {
		if strings.HasPrefix(rest, "[") {
			n := bracketEnd(rest)
			if n < 0 {
				return nil, false, fmt.Errorf("the path %s has a bracket without end", shorten(path, 100))
			}
			part := rest[:n]
			if inner := strings.TrimLeft(part[1:], " "); strings.HasPrefix(inner, "?") {
				if filters++; filters > 3 || strings.ContainsAny(inner[1:], "?$") || strings.Contains(inner, "..") {
					return nil, false, errors.New("the path has more than 3 filters, or a filter with another filter, with $ or with .. inside")
				}
			}
			x, err := jp.ParseString("$" + part)
			if err != nil {
				return nil, false, fmt.Errorf("the path %s is not valid: %w", shorten(path, 100), err)
			}
			for _, f := range x[1:] {
				switch f.(type) {
				case jp.Child, jp.Nth:
				default:
					definite = false
				}
			}
			expr, rest = append(expr, x[1:]...), rest[n:]
			continue
		}
		if after, ok := strings.CutPrefix(rest, ".."); ok {
			if searches++; searches > 1 {
				return nil, false, errors.New("the path uses .. more than once")
			}
			expr, definite, rest = expr.D(), false, after
			if strings.HasPrefix(rest, "[") {
				continue
			}
		} else {
			rest = strings.TrimPrefix(rest, ".")
		}
		n := strings.IndexAny(rest, ".[")
		if n < 0 {
			n = len(rest)
		}
		key := rest[:n]
		switch {
		case key == "":
			return nil, false, fmt.Errorf("the path %s has an empty name", shorten(path, 100))
		case key == "*":
			expr, definite = expr.W(), false
		case strings.HasSuffix(key, ")"):
			return nil, false, fmt.Errorf("the path %s has a function, and paths have none", shorten(path, 100))
		default:
			expr = expr.C(key)
		}
		rest = rest[n:]
	}
	return expr, definite, nil
}

// bracketEnd returns the length of the bracket at the begin of a path, or -1.
func bracketEnd(path string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '[':
			depth++
		case c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}
