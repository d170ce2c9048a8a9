package task

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/internal/jsonscan"
)

// unknownMembers returns the members of the JSON object b that have no field, as
// text to insert between the braces of another object. It is empty if there are
// none, or if b is not an object.
//
// Like encoding/json, it ignores the case of names: a member that was decoded into
// a field must not be encoded twice.
func unknownMembers(b []byte, fields []string) string {
	var out []byte
	eachMember(b, func(name string, member, _ []byte) {
		if slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, name) }) {
			return
		}
		if out != nil {
			out = append(out, ',')
		}
		out = append(out, member...)
	})
	return string(out)
}

// eachMember calls f with the name, the text and the value of every member of the
// JSON object b. It does nothing if b is not an object.
func eachMember(b []byte, f func(name string, member, value []byte)) {
	s := jsonscan.New(b)
	s.Space()
	s.Object(0, func(quoted, value, member []byte) {
		name := string(quoted)
		if strings.Contains(name, `\`) {
			name = jsonscan.Unquote(quoted)
		}
		f(name, member, value)
	})
}

// appendMembers adds the text of unknownMembers to an encoded object.
func appendMembers(object []byte, members string) []byte {
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
		"traceparent", "tracestate",
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

// keepUnknown stores the unknown members of the text that t was decoded from, in
// the task and in its sections. The sections have no UnmarshalJSON method: it would
// make encoding/json read their text two more times.
func (t *Task) keepUnknown(b []byte) {
	t.extra = unknownMembers(b, taskFields)
	eachMember(b, func(name string, _, value []byte) {
		switch strings.ToLower(name) {
		case "logging":
			t.Logging.extra = unknownMembers(value, loggingFields)
		case "delegate":
			t.Delegate.extra = unknownMembers(value, delegateFields)
		case "logger":
			if t.Logger != nil {
				t.Logger.extra = unknownMembers(value, loggerFields)
			}
		case "forward":
			if t.Forward != nil {
				t.Forward.keepUnknown(value)
			}
		}
	})
}

func (f *Forward) keepUnknown(b []byte) {
	f.extra = unknownMembers(b, forwardFields)
	eachMember(b, func(name string, _, value []byte) {
		if strings.EqualFold(name, "certs") && f.Certs != nil {
			f.Certs.extra = unknownMembers(value, certsFields)
		}
	})
}

// encodeWith encodes v, a type without methods, with its unknown members.
func encodeWith(v any, members string) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return appendMembers(b, members), nil
}

// MarshalJSON encodes l with its unknown members.
func (l Logging) MarshalJSON() ([]byte, error) {
	type plain Logging
	return encodeWith(plain(l), l.extra)
}

// MarshalJSON encodes d with its unknown members.
func (d Delegate) MarshalJSON() ([]byte, error) {
	type plain Delegate
	return encodeWith(plain(d), d.extra)
}

// MarshalJSON encodes f with its unknown members.
func (f Forward) MarshalJSON() ([]byte, error) {
	type plain Forward
	return encodeWith(plain(f), f.extra)
}

// MarshalJSON encodes c with its unknown members.
func (c Certs) MarshalJSON() ([]byte, error) {
	type plain Certs
	return encodeWith(plain(c), c.extra)
}

// MarshalJSON encodes l with its unknown members.
func (l Logger) MarshalJSON() ([]byte, error) {
	type plain Logger
	return encodeWith(plain(l), l.extra)
}
