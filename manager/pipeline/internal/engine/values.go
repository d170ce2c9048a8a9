package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Values is a map of plain values. Its JSON keeps the types of numbers: an int64 and a float64
// come back as they were.
type Values map[string]any

// MarshalJSON encodes an object.
func (v Values) MarshalJSON() ([]byte, error) {
	return json.Marshal(typed(map[string]any(v)))
}

// typed returns a copy of value in which whole numbers of type float64 keep a decimal point.
func typed(value any) any {
	switch value := value.(type) {
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < 1e15 {
			return json.RawMessage(strconv.FormatFloat(value, 'f', 1, 64))
		}
	case []any:
		list := make([]any, len(value))
		for i := range value {
			list[i] = typed(value[i])
		}
		return list
	case map[string]any:
		if value == nil {
			return nil
		}
		fields := make(map[string]any, len(value))
		for key := range value {
			fields[key] = typed(value[key])
		}
		return fields
	}
	return value
}

// UnmarshalJSON decodes an object.
func (v *Values) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var raw map[string]any
	if err := decoder.Decode(&raw); err != nil {
		return err
	}
	for key, value := range raw {
		raw[key] = plain(value)
	}
	*v = raw
	return nil
}

// plain replaces the numbers of JSON by int64 and float64.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		if !strings.ContainsAny(value.String(), ".eE") {
			if whole, err := value.Int64(); err == nil {
				return whole
			}
		}
		number, _ := value.Float64()
		return number
	case []any:
		for i := range value {
			value[i] = plain(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = plain(value[key])
		}
	}
	return value
}
