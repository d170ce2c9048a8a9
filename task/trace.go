package task

import (
	"encoding/json"
	"strings"
)

// Text is a string that is empty when something else came in its place: what a
// stranger means by a member that we added must not spoil the task.
type Text string

// UnmarshalJSON reads a string.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = ""
	}
	*t = Text(s)
	return nil
}

// maxTracestate is the length in bytes that everybody passes on.
const maxTracestate = 512

// TraceContext is the task's trace context, as far as it has the form of one:
// without a good parent both are empty, and a bad state is left out. So they fit
// into a process's environment.
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

// Span are the ids, in hexadecimal, of the trace and of the span that the task's
// run is a part of.
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

// isHex says whether all are lower-case hexadecimal digits.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isZero(s string) bool { return strings.Trim(s, "0") == "" }
