package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// String scans a string and returns the text between its quotes, with its escapes.
func (s *Scanner) String() (inside []byte, ok bool) {
	if !s.Skip('"') {
		return nil, false
	}
	text, begin := s.text, s.pos
	for i := begin; ; {
		i = plainEnd(text, i)
		if i == len(text) {
			return nil, false
		}
		if text[i] == '"' {
			s.pos = i + 1
			return text[begin:i], true
		}
		n := escapeLen(text[i:])
		if n == 0 {
			return nil, false
		}
		i += n
	}
}

// escapeLen returns the length of the escape sequence at the beginning of b, or 0
// if there is none.
func escapeLen(b []byte) int {
	if len(b) < 2 || b[0] != '\\' {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) >= 6 && isHex(b[2]) && isHex(b[3]) && isHex(b[4]) && isHex(b[5]) {
			return 6
		}
	}
	return 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// plainEnd returns the index of the first quote, backslash or control character
// at or after i, or len(b) if there is none. It tests eight bytes at a time.
func plainEnd(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i : i+8])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		// Each term sets the high bit of the first byte that it matches, and no
		// bit of an earlier byte.
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

// StringEnd returns the index of the quote that ends a string, given its text
// after the opening quote, or len(b) if there is none. It does not check that the
// string is valid.
func StringEnd(b []byte) int {
	for i := 0; ; {
		i = plainEnd(b, i)
		switch {
		case i >= len(b):
			return len(b)
		case b[i] == '"':
			return i
		case b[i] == '\\':
			i = min(i+2, len(b))
		default: // a control character
			i++
		}
	}
}
