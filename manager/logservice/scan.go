package logservice

import (
	"encoding/binary"
	"math/bits"
)

// scanner takes JSON apart without decoding it, once and from left to right. It
// accepts exactly what encoding/json accepts. This is done to every byte of every
// step's log, and several times as fast as there.
type scanner struct {
	b      []byte
	i      int
	broken bool // a newline or carriage return was skipped
}

// maxDepth bounds how deep values nest, as encoding/json does.
const maxDepth = 10_000

// value scans a value within depth others. It is false when there is none, and
// then i may be anywhere.
func (s *scanner) value(depth int) bool {
	if s.i == len(s.b) {
		return false
	}
	switch c := s.b[s.i]; c {
	case '"':
		_, ok := s.text()
		return ok
	case '{':
		s.i++
		return s.members(depth, nil)
	case '[':
		s.i++
		return s.elements(depth)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return s.number()
	}
}

// members scans what follows the brace of an object that is within depth others,
// and calls found, if any, behind each member, with its name as it stands in the
// quotes, and where its value begins.
func (s *scanner) members(depth int, found func(name []byte, start int)) bool {
	if depth >= maxDepth {
		return false
	}
	s.space()
	if s.skip('}') {
		return true
	}
	for {
		s.space()
		name, ok := s.text()
		if !ok {
			return false
		}
		s.space()
		if !s.skip(':') {
			return false
		}
		s.space()
		start := s.i
		if !s.value(depth + 1) {
			return false
		}
		if found != nil {
			found(name, start)
		}
		s.space()
		if s.skip(',') {
			continue
		}
		return s.skip('}')
	}
}

// elements scans what follows the bracket of a list.
func (s *scanner) elements(depth int) bool {
	if depth >= maxDepth {
		return false
	}
	s.space()
	if s.skip(']') {
		return true
	}
	for {
		s.space()
		if !s.value(depth + 1) {
			return false
		}
		s.space()
		if s.skip(',') {
			continue
		}
		return s.skip(']')
	}
}

// text scans a string and returns what is in its quotes.
func (s *scanner) text() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	start := s.i
	for {
		s.i += plainText(s.b[s.i:])
		if s.i == len(s.b) {
			return nil, false
		}
		switch s.b[s.i] {
		case '"':
			s.i++
			return s.b[start : s.i-1], true
		case '\\':
			if !s.escape() {
				return nil, false
			}
		default:
			return nil, false // a control character
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// plainText is how many bytes from the first one on are neither a quote, nor a
// backslash, nor a control character. It looks at eight of them at a time.
func plainText(b []byte) int {
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		// Each term has the high bit of the first byte that it is about set, and
		// of none before that.
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// escape scans what a backslash begins.
func (s *scanner) escape() bool {
	if s.i+1 >= len(s.b) {
		return false
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	case 'u':
		if s.i+6 > len(s.b) {
			return false
		}
		for _, c := range s.b[s.i+2 : s.i+6] {
			if !isHex(c) {
				return false
			}
		}
		s.i += 6
		return true
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) number() bool {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	if s.skip('e') || s.skip('E') {
		_ = s.skip('+') || s.skip('-')
		return s.digits()
	}
	return true
}

// digits scans at least one.
func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

func (s *scanner) literal(text string) bool {
	if len(s.b)-s.i < len(text) || string(s.b[s.i:s.i+len(text)]) != text {
		return false
	}
	s.i += len(text)
	return true
}

// skip skips one character if it is there.
func (s *scanner) skip(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) space() {
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case ' ', '\t':
		case '\n', '\r':
			s.broken = true
		default:
			return
		}
	}
}
