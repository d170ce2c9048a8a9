package task

import (
	"encoding/json"
	"strings"
)

// lenientString decodes a JSON value that is no string as the empty string.
// Another manager may use an extension's member for something else, and that must
// not make the task invalid.
type lenientString string

// UnmarshalJSON decodes a string.
func (l *lenientString) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = ""
	}
	*l = lenientString(s)
	return nil
}

// maxTracestate is the size in bytes up to which W3C Trace Context guarantees
// that a state is passed on.
const maxTracestate = 512

// SetTraceContext sets Traceparent and Tracestate.
func (t *Task) SetTraceContext(parent, state string) {
	t.Traceparent, t.Tracestate = lenientString(parent), lenientString(state)
}

// TraceContext returns the valid parts of the task's trace context. If the parent
// is invalid, both are empty. An invalid state is omitted. The results can be put
// into the environment of a process.
func (t *Task) TraceContext() (parent, state string) {
	if _, _, ok := t.Span(); !ok {
		return "", ""
	}
	state = string(t.Tracestate)
	if len(state) > maxTracestate || strings.ContainsFunc(state, func(r rune) bool { return r < ' ' || r > '~' }) {
		state = ""
	}
	return string(t.Traceparent), state
}

// Span returns the hexadecimal ids of the trace and of the parent span of the
// task's run. ok is false if Traceparent is invalid.
func (t *Task) Span() (trace, span string, ok bool) {
	p := string(t.Traceparent) // 00-<32 digits>-<16 digits>-<2 digits>
	if len(p) != 55 || p[:3] != "00-" || p[35] != '-' || p[52] != '-' {
		return "", "", false
	}
	trace, span = p[3:35], p[36:52]
	if !isHex(trace) || !isHex(span) || !isHex(p[53:]) || isZero(trace) || isZero(span) {
		return "", "", false
	}
	return trace, span, true
}

// isHex reports whether s consists of lower-case hexadecimal digits.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isZero(s string) bool { return strings.Trim(s, "0") == "" }
