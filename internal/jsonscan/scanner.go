// Package jsonscan walks over JSON text without decoding it.
//
// A [Scanner] reads a text once, from left to right. It accepts exactly the texts
// that encoding/json accepts and is several times as fast. It allocates nothing:
// names and values are parts of the scanned text, with their escapes.
//
//	s := jsonscan.New([]byte(`{"id": 7, "tags": ["a"]}`))
//	ok := s.Object(0, func(name, value, _ []byte) {
//		fmt.Printf("%s = %s\n", name, value)
//	})
package jsonscan

import "encoding/json"

// MaxDepth is the number of objects and arrays that may enclose each other. It is
// the limit of encoding/json.
const MaxDepth = 10_000

// Scanner is a position in a JSON text. A method that reports false has found
// invalid JSON; the position is then undefined.
type Scanner struct {
	text []byte
	pos  int
}

// New returns a scanner at the beginning of text.
func New(text []byte) Scanner { return Scanner{text: text} }

// Valid reports whether text is one JSON value, with optional white space around it.
func Valid(text []byte) bool {
	s := New(text)
	s.Space()
	if !s.Value(0) {
		return false
	}
	s.Space()
	return s.pos == len(text)
}

// Pos returns the offset of the next byte.
func (s *Scanner) Pos() int { return s.pos }

// Seek moves the scanner to an offset that Pos returned.
func (s *Scanner) Seek(pos int) { s.pos = pos }

// Value scans one value. Depth is the number of values that enclose it.
func (s *Scanner) Value(depth int) bool {
	if s.pos == len(s.text) {
		return false
	}
	switch s.text[s.pos] {
	case '"':
		_, ok := s.String()
		return ok
	case '{':
		return s.Object(depth, nil)
	case '[':
		return s.array(depth)
	case 't':
		return s.Literal("true")
	case 'f':
		return s.Literal("false")
	case 'n':
		return s.Literal("null")
	default:
		return s.number()
	}
}

// Object scans an object. If visit is not nil, Object calls it after each member
// with three parts of the text: the name between its quotes, the value, and the
// member from the name's first quote to the end of the value. Depth is the number
// of values that enclose the object.
func (s *Scanner) Object(depth int, visit func(name, value, member []byte)) bool {
	if !s.Skip('{') || depth >= MaxDepth {
		return false
	}
	s.Space()
	if s.Skip('}') {
		return true
	}
	for {
		s.Space()
		begin := s.pos
		name, ok := s.String()
		if !ok {
			return false
		}
		s.Space()
		if !s.Skip(':') {
			return false
		}
		s.Space()
		value := s.pos
		if !s.Value(depth + 1) {
			return false
		}
		if visit != nil {
			visit(name, s.text[value:s.pos], s.text[begin:s.pos])
		}
		s.Space()
		if s.Skip(',') {
			continue
		}
		return s.Skip('}')
	}
}

func (s *Scanner) array(depth int) bool {
	s.pos++ // the bracket
	if depth >= MaxDepth {
		return false
	}
	s.Space()
	if s.Skip(']') {
		return true
	}
	for {
		s.Space()
		if !s.Value(depth + 1) {
			return false
		}
		s.Space()
		if s.Skip(',') {
			continue
		}
		return s.Skip(']')
	}
}

func (s *Scanner) number() bool {
	s.Skip('-')
	if !s.Skip('0') && !s.digits() {
		return false
	}
	if s.Skip('.') && !s.digits() {
		return false
	}
	if s.Skip('e') || s.Skip('E') {
		_ = s.Skip('+') || s.Skip('-')
		return s.digits()
	}
	return true
}

// digits scans one or more digits.
func (s *Scanner) digits() bool {
	begin := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > begin
}

// Literal scans text, such as "null". If it reports false, the position has not changed.
func (s *Scanner) Literal(text string) bool {
	if len(s.text)-s.pos < len(text) || string(s.text[s.pos:s.pos+len(text)]) != text {
		return false
	}
	s.pos += len(text)
	return true
}

// Skip scans the byte c. If it reports false, the position has not changed.
func (s *Scanner) Skip(c byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// Space scans white space, if any.
func (s *Scanner) Space() {
	for ; s.pos < len(s.text); s.pos++ {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
		default:
			return
		}
	}
}

// Unquote decodes the escapes in a string that a scanner has accepted, given
// without its quotes. As encoding/json does, it replaces invalid UTF-8.
func Unquote(inside []byte) string {
	var text string
	_ = json.Unmarshal(append(append([]byte{'"'}, inside...), '"'), &text) // it is valid
	return text
}
