package task

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// unknown is the members of the JSON object b whose names no field takes, as
// text to put between the braces of another object. It is empty when there are
// none and when b is no object.
//
// Names are compared as encoding/json does, without regard to case: a member
// that was decoded into a field must not come back next to it.
func unknown(b []byte, fields []string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(b, &members) != nil {
		return ""
	}
	for name := range members {
		if slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, name) }) {
			delete(members, name)
		}
	}
	if len(members) == 0 {
		return ""
	}
	text, err := json.Marshal(members)
	if err != nil {
		return "" // it was decoded a moment ago
	}
	return string(text[1 : len(text)-1])
}

// withUnknown puts members that unknown has found into an encoded object.
func withUnknown(object []byte, members string) []byte {
	if members == "" {
		return object
	}
	inside := bytes.TrimSuffix(object, []byte("}"))
	if len(inside) > 1 {
		inside = append(inside, ',')
	}
	return append(append(inside, members...), '}')
}

// The JSON names of each type's fields.
var (
	taskFields = []string{
		"id", "type", "data", "async", "runnerResponse", "timeout", "logging", "delegate", "capabilities",
		"account", "driver", "config", "forward", "logger", "secrets",
	}
	loggingFields  = []string{"token", "abstractions"}
	delegateFields = []string{"id", "instance_id", "token"}
	forwardFields  = []string{"address", "insecure", "certs"}
	certsFields    = []string{"public", "private", "ca"}
	loggerFields   = []string{
		"address", "insecure", "token", "key", "account", "indirect_upload", "skip_opening_stream",
		"skip_closing_stream", "trim_new_line_suffix", "increase_log_limit", "masks",
	}
)

// decodeWith decodes b into v, which has no methods, and returns what was
// unknown in it.
func decodeWith(b []byte, v any, fields []string) (string, error) {
	if err := json.Unmarshal(b, v); err != nil {
		return "", err
	}
	return unknown(b, fields), nil
}

// encodeWith encodes v, which has no methods, with what was unknown in it.
func encodeWith(v any, members string) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return withUnknown(b, members), nil
}

// UnmarshalJSON keeps the members that it does not know.
func (l *Logging) UnmarshalJSON(b []byte) error {
	type plain Logging
	var p plain
	extra, err := decodeWith(b, &p, loggingFields)
	*l = Logging(p)
	l.extra = extra
	return err
}

// MarshalJSON encodes l with the members that it does not know.
func (l Logging) MarshalJSON() ([]byte, error) {
	type plain Logging
	return encodeWith(plain(l), l.extra)
}

// UnmarshalJSON keeps the members that it does not know.
func (d *Delegate) UnmarshalJSON(b []byte) error {
	type plain Delegate
	var p plain
	extra, err := decodeWith(b, &p, delegateFields)
	*d = Delegate(p)
	d.extra = extra
	return err
}

// MarshalJSON encodes d with the members that it does not know.
func (d Delegate) MarshalJSON() ([]byte, error) {
	type plain Delegate
	return encodeWith(plain(d), d.extra)
}

// UnmarshalJSON keeps the members that it does not know.
func (f *Forward) UnmarshalJSON(b []byte) error {
	type plain Forward
	var p plain
	extra, err := decodeWith(b, &p, forwardFields)
	*f = Forward(p)
	f.extra = extra
	return err
}

// MarshalJSON encodes f with the members that it does not know.
func (f Forward) MarshalJSON() ([]byte, error) {
	type plain Forward
	return encodeWith(plain(f), f.extra)
}

// UnmarshalJSON keeps the members that it does not know.
func (c *Certs) UnmarshalJSON(b []byte) error {
	type plain Certs
	var p plain
	extra, err := decodeWith(b, &p, certsFields)
	*c = Certs(p)
	c.extra = extra
	return err
}

// MarshalJSON encodes c with the members that it does not know.
func (c Certs) MarshalJSON() ([]byte, error) {
	type plain Certs
	return encodeWith(plain(c), c.extra)
}

// UnmarshalJSON keeps the members that it does not know.
func (l *Logger) UnmarshalJSON(b []byte) error {
	type plain Logger
	var p plain
	extra, err := decodeWith(b, &p, loggerFields)
	*l = Logger(p)
	l.extra = extra
	return err
}

// MarshalJSON encodes l with the members that it does not know.
func (l Logger) MarshalJSON() ([]byte, error) {
	type plain Logger
	return encodeWith(plain(l), l.extra)
}
