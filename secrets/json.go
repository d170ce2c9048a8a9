package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/delegate-io/dlite/internal/jsonscan"
)

// document is one JSON text in the course of its resolution. It works on the
// text and not on decoded values: only strings are looked at, and of these only
// what is replaced is written anew.
type document struct {
	resolver *Resolver
	left     int // bytes that may still be made
}

// spend accounts for n more bytes.
func (d *document) spend(n int) error {
	if d.left -= n; d.left < 0 {
		return fmt.Errorf("resolving secrets: the result would be larger than %d bytes", d.resolver.cfg.MaxSize)
	}
	return nil
}

// resolve replaces what is in the strings of a valid JSON text.
func (d *document) resolve(ctx context.Context, data []byte) ([]byte, error) {
	var out []byte
	done := 0 // data[:done] is in out
	for i := 0; ; {
		quote := bytes.IndexByte(data[i:], '"')
		if quote < 0 {
			break
		}
		begin := i + quote + 1
		end := begin + jsonscan.StringEnd(data[begin:])
		i = end + 1
		raw := data[begin:end]
		if !promising(raw) {
			continue
		}
		s := decodeString(raw)
		found, err := d.evaluate(ctx, s.text)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 && isKey(data[end+1:]) {
			return nil, errors.New("resolving secrets: a secret must not be part of an object's key")
		}
		for _, p := range found {
			out = append(out, data[done:begin+s.at(p.begin)]...)
			before := len(out)
			out = appendEscaped(out, p.value)
			if err := d.spend(len(out) - before); err != nil {
				return nil, err
			}
			done = begin + s.at(p.end)
		}
	}
	if out == nil {
		return data, d.spend(len(data))
	}
	out = append(out, data[done:]...)
	return out, d.spend(len(data))
}

// isKey tells whether a string that is followed by rest is an object's key.
func isKey(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// decoded is a JSON string's text.
type decoded struct {
	text string
	// offset is where each byte of text, and its end, lies in the JSON. Bytes of
	// one escape share its beginning. It is nil when that is where it is in text.
	offset []uint32
}

func (s *decoded) at(i int) int {
	if s.offset == nil {
		return i
	}
	return int(s.offset[i])
}

// decodeString decodes what is between the quotes of a valid JSON string. Half
// a surrogate pair becomes U+FFFD; bytes that are no UTF-8 stay.
func decodeString(raw []byte) decoded {
	if bytes.IndexByte(raw, '\\') < 0 {
		return decoded{text: string(raw)}
	}
	text, offset := make([]byte, 0, len(raw)), make([]uint32, 0, len(raw)+1)
	for i := 0; i < len(raw); {
		begin := i
		if raw[i] != '\\' {
			text = append(text, raw[i])
			i++
		} else if c := raw[i+1]; c == 'u' {
			r := hex4(raw[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					low = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			text = utf8.AppendRune(text, r)
		} else {
			text = append(text, unescaped(c))
			i += 2
		}
		for len(offset) < len(text) {
			offset = append(offset, uint32(begin))
		}
	}
	return decoded{string(text), append(offset, uint32(len(raw)))}
}

func hex4(b []byte) (r rune) {
	for _, c := range b[:4] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c&^0x20 - 'A' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default: // a quote, a backslash or a slash
		return c
	}
}

// appendEscaped appends valid UTF-8 text as the inside of a JSON string.
func appendEscaped(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}
