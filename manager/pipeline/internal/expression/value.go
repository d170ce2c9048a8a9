package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

var (
	errNull   = errors.New("the value is null: give a default with ??, or compare it with null before")
	errSecret = errors.New("the value of a secret is not known here: a secret can only be inserted into a text")
)

// normal converts a value of a scope to a value of the evaluator.
func normal(v any) (any, bool) {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, []any, map[string]any, Object, Secret, moment, *mixed:
		return v, true
	case int:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint:
		return unsigned(uint64(v)), true
	case uint64:
		return unsigned(v), true
	case float32:
		return float64(v), true
	case json.Number:
		return number(v), true
	case []string:
		items := make([]any, len(v))
		for i, s := range v {
			items[i] = s
		}
		return items, true
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, s := range v {
			m[k] = s
		}
		return m, true
	}
	return v, false
}

func unsigned(n uint64) any {
	if n > math.MaxInt64 {
		return float64(n)
	}
	return int64(n)
}

func number(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n.String()
}

// truth converts a value to a Boolean: the texts "" and "false", 0 and NaN are false, every other
// value is true. null is an error.
func truth(v any) (bool, error) {
	switch v := v.(type) {
	case nil:
		return false, fmt.Errorf("a condition is needed: %w", errNull)
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	case float64:
		return v != 0 && !math.IsNaN(v), nil
	case string:
		return v != "" && v != "false", nil
	case Secret, *mixed:
		return false, errSecret
	}
	return true, nil
}

// isEmpty implements empty: null, "", an empty list or map, 0 and NaN.
func isEmpty(v any) (bool, error) {
	switch v := v.(type) {
	case nil:
		return true, nil
	case int64:
		return v == 0, nil
	case float64:
		return v == 0 || math.IsNaN(v), nil
	case Secret, *mixed:
		return false, errSecret
	case string, []any, map[string]any, Object:
		n, err := sizeOf(v)
		return n == int64(0), err
	}
	return false, nil
}

// sizeOf implements size: the characters of a text, the items of a list or a map, 0 for null.
func sizeOf(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return int64(0), nil
	case string:
		return int64(length(v)), nil
	case []any:
		return int64(len(v)), nil
	case map[string]any:
		return int64(len(v)), nil
	case Object:
		return int64(len(v.Names())), nil
	case Secret, *mixed:
		return nil, errSecret
	}
	return nil, fmt.Errorf("%s has no size", typeName(v))
}

// typeName returns the name of the type of a value, with an article.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a Boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any, Object:
		return "a map"
	case moment:
		return "a date"
	}
	return "a secret"
}

// scalarText returns the text of a text, a number or a Boolean. what names the value in errors.
func (ev *evaluation) scalarText(v any, what string) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int64, float64, moment:
		return scalar(v), nil
	case nil:
		return "", fmt.Errorf("%s must be a text: %w", what, errNull)
	case Secret, *mixed:
		return "", fmt.Errorf("%s must be a text: %w", what, errSecret)
	}
	return "", fmt.Errorf("%s must be a text, not %s", what, typeName(v))
}

// scalar returns the text of a Boolean, a number, a date or a text.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case moment:
		return v.String()
	}
	return ""
}

// floatText returns a number in the form of Java: with a fraction, and with an exponent if it is
// very large or very small.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}

// appendText appends the text of a value: that of Java's String.valueOf.
func (ev *evaluation) appendText(b *builder, v any) error {
	switch v := v.(type) {
	case Secret:
		return errSecret
	case *mixed:
		for _, s := range v.spans {
			if err := ev.append(b, s.text, s.trusted); err != nil {
				return err
			}
		}
		return nil
	case string:
		return ev.append(b, v, false)
	}
	text, err := ev.appendNested(nil, v, 0)
	if err != nil {
		return err
	}
	b.add(string(text), false)
	return nil
}

// append appends text and counts its size.
func (ev *evaluation) append(b *builder, text string, trusted bool) error {
	if err := ev.spend(len(text)); err != nil {
		return err
	}
	b.add(text, trusted)
	if b.size > ev.limits.ValueBytes {
		return ev.spend(b.size)
	}
	return nil
}

const maxLevels = 100 // lists and maps inside each other

// appendNested appends the text of a value in a list or a map: [a, b] and {k=v}.
func (ev *evaluation) appendNested(b []byte, v any, level int) ([]byte, error) {
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
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			if b, err = ev.appendNested(b, item, level+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), ev.spend(2)
	case map[string]any:
		b = append(b, '{')
		for i, k := range sortedKeys(v) {
			if i > 0 {
				b = append(b, ", "...)
			}
			if err := ev.spend(len(k) + 1); err != nil {
				return nil, err
			}
			b = append(append(b, k...), '=')
			if b, err = ev.appendNested(b, v[k], level+1); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), ev.spend(2)
	case nil:
		return append(b, "null"...), ev.spend(4)
	case Object:
		return nil, errors.New("a map has no text: name one of its members")
	case Secret, *mixed:
		return nil, errors.New("a secret in a list or a map has no text")
	}
	text := scalar(v)
	if err := ev.spend(len(text)); err != nil {
		return nil, err
	}
	if len(b)+len(text) > ev.limits.ValueBytes {
		return nil, ev.spend(len(b) + len(text))
	}
	return append(b, text...), nil
}

// textOf returns the text of a value that has no secret.
func (ev *evaluation) textOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case Secret, *mixed:
		return "", errSecret
	}
	b, err := ev.appendNested(nil, v, 0)
	return string(b), err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
