package logservice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/delegate-io/dlite/internal/jsonscan"
	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// parse appends the lines in the body of a PUT to lines. A line shares the body's
// memory. It must be an object; its member "pos", if any, must be an integer. If
// there are several, the last one counts.
func parse(lines []livelog.Line, body []byte) ([]livelog.Line, error) {
	p := lineParser{Scanner: jsonscan.New(body), body: body}
	p.Space()
	switch {
	case p.Literal("null"):
	case p.Skip('['):
		var err error
		if lines, err = p.lines(lines); err != nil {
			return nil, err
		}
	case p.Value(0):
		return nil, &httpError{http.StatusBadRequest, "decoding the lines: this is not a list"}
	default:
		return nil, errNoJSON
	}
	if p.Space(); p.Pos() != len(body) {
		return nil, errNoJSON
	}
	return lines, nil
}

var errNoJSON = &httpError{http.StatusBadRequest, "decoding the lines: this is not JSON"}

// maxLines bounds the lines of one PUT: a line takes three bytes in a body, but ten times
// as many in memory.
const maxLines = 1 << 17

// lineParser contains the state of parse.
type lineParser struct {
	jsonscan.Scanner
	body []byte
}

// lines scans the elements of an array after its opening bracket.
func (p *lineParser) lines(lines []livelog.Line) ([]livelog.Line, error) {
	p.Space()
	if p.Skip(']') {
		return lines, nil
	}
	if cap(lines) == 0 {
		lines = make([]livelog.Line, 0, len(p.body)/128+1)
	}
	multiline := hasLineBreak(p.body)
	for {
		p.Space()
		start := p.Pos()
		pos, ok := p.line()
		if !ok {
			return nil, p.refuse(start, len(lines))
		}
		raw := p.body[start:p.Pos():p.Pos()]
		if multiline && hasLineBreak(raw) {
			// Events and the archive need one line for each object.
			var b bytes.Buffer
			_ = json.Compact(&b, raw) // raw is valid JSON
			raw = b.Bytes()
		}
		if len(lines) >= maxLines {
			return nil, &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d lines", maxLines)}
		}
		lines = append(lines, livelog.Line{Raw: raw, Pos: pos})
		p.Space()
		if p.Skip(',') {
			continue
		}
		if p.Skip(']') {
			return lines, nil
		}
		return nil, errNoJSON
	}
}

// hasLineBreak reports whether JSON text has a line break. Strings have none: they
// would be escaped.
func hasLineBreak(text []byte) bool {
	return bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0
}

// refuse returns the error for line n, which begins at offset start.
func (p *lineParser) refuse(start, n int) error {
	p.Seek(start)
	if !p.Value(1) {
		return errNoJSON
	}
	return &httpError{http.StatusBadRequest, fmt.Sprintf("line %d is not a line object", n)}
}

// line scans a line object and returns its "pos", or 0 if it has none.
func (p *lineParser) line() (pos int64, ok bool) {
	var text []byte // of the last pos
	ok = p.Object(1, func(name, value, _ []byte) {
		if isPos(name) {
			text = value
		}
	})
	if !ok || text == nil || string(text) == "null" {
		return 0, ok
	}
	pos, err := strconv.ParseInt(string(text), 10, 64)
	return pos, err == nil
}

// isPos reports whether name, the text between the quotes of a string, means "pos".
func isPos(name []byte) bool {
	if len(name) < len(`\u0070os`) || bytes.IndexByte(name, '\\') < 0 {
		return string(name) == "pos"
	}
	return jsonscan.Unquote(name) == "pos"
}
