package logservice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// parse reads the lines of a PUT into lines. They are kept as they are, in the
// body's memory; an object is all that is asked of them, and a whole number if
// there is a member "pos". Of two, the last one counts.
func parse(lines []Line, body []byte) ([]Line, error) {
	s := scanner{b: body}
	s.space()
	switch {
	case s.literal("null"):
	case s.skip('['):
		var err error
		if lines, err = s.lines(lines); err != nil {
			return nil, err
		}
	case s.value(0):
		return nil, &httpError{http.StatusBadRequest, "decoding the lines: this is not a list"}
	default:
		return nil, errNoJSON
	}
	if s.space(); s.i != len(body) {
		return nil, errNoJSON
	}
	return lines, nil
}

var errNoJSON = &httpError{http.StatusBadRequest, "decoding the lines: this is not JSON"}

// lines scans what follows the bracket of a list.
func (s *scanner) lines(lines []Line) ([]Line, error) {
	s.space()
	if s.skip(']') {
		return lines, nil
	}
	if cap(lines) == 0 {
		lines = make([]Line, 0, len(s.b)/128+1)
	}
	for {
		s.space()
		start := s.i
		s.broken = false
		pos, ok := s.line()
		if !ok {
			return nil, s.refuse(start, len(lines))
		}
		raw := s.b[start:s.i:s.i]
		if s.broken {
			// One line each, for events and archive.
			var b bytes.Buffer
			_ = json.Compact(&b, raw) // it is JSON
			raw = b.Bytes()
		}
		lines = append(lines, Line{Raw: raw, Pos: pos})
		s.space()
		if s.skip(',') {
			continue
		}
		if s.skip(']') {
			return lines, nil
		}
		return nil, errNoJSON
	}
}

// refuse says what is wrong with the line that begins at start.
func (s *scanner) refuse(start, n int) error {
	s.i = start
	if !s.value(1) {
		return errNoJSON
	}
	return &httpError{http.StatusBadRequest, fmt.Sprintf("line %d is no line object", n)}
}

// line scans a line object and finds its pos, 0 where it has none.
func (s *scanner) line() (pos int64, ok bool) {
	if !s.skip('{') {
		return 0, false
	}
	var text []byte // of the last pos
	ok = s.members(1, func(name []byte, start int) {
		if isPos(name) {
			text = s.b[start:s.i]
		}
	})
	if !ok || text == nil || string(text) == "null" {
		return 0, ok
	}
	pos, err := strconv.ParseInt(string(text), 10, 64)
	return pos, err == nil
}

// isPos tells whether a string, as it stands in its quotes, is "pos".
func isPos(name []byte) bool {
	if len(name) < len(`\u0070os`) || bytes.IndexByte(name, '\\') < 0 {
		return string(name) == "pos"
	}
	var text string
	_ = json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &text) // it is JSON
	return text == "pos"
}
