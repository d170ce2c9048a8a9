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

// document is a JSON text during its resolution. The resolver works on the text, not
// on decoded values: it changes only the parts of strings that it replaces.
type document struct {
	resolver  *Resolver
	remaining int // bytes that may still be made
}

// spend counts n more bytes.
func (d *document) spend(n int) error {
	if d.remaining -= n; d.remaining < 0 {
		return fmt.Errorf("resolving secrets: the result would be larger than %d bytes", d.resolver.cfg.MaxSize)
	}
	return nil
}

// resolve replaces the expressions in the strings of a valid JSON text.
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
		if !mayHaveExpression(raw) {
			continue
		}
		s := decodeString(raw)
		subs, err := d.evaluate(ctx, s.text)
		if err != nil {
			return nil, err
		}
		if len(subs) > 0 && isKey(data[end+1:]) {
			return nil, errors.New("resolving secrets: a secret must not be part of an object's key")
		}
		for _, sub := range subs {
			out = append(out, data[done:begin+s.offset(sub.begin)]...)
			before := len(out)
			out = appendEscaped(out, sub.value)
			if err := d.spend(len(out) - before); err != nil {
				return nil, err
			}
			done = begin + s.offset(sub.end)
		}
	}
	if out == nil {
		return data, d.spend(len(data))
	}
	out = append(out, data[done:]...)
	return out, d.spend(len(data))
}

// isKey reports whether a string before rest is an object's key.
func isKey(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// decodedString is the text of a JSON string.
type decodedString struct {
	text string
	// offsets has the offset in the JSON text for each byte of text, and for its
	// end. The bytes of one escape have the offset of the escape. nil means that
	// the string has no escapes.
	offsets []uint32
}

// offset returns the offset in the JSON text of byte i.
func (s *decodedString) offset(i int) int {
	if s.offsets == nil {
		return i
	}
	return int(s.offsets[i])
}

// decodeString decodes the text between the quotes of a valid JSON string. An
// unpaired surrogate becomes U+FFFD. Invalid UTF-8 stays as it is.
func decodeString(raw []byte) decodedString {
	if bytes.IndexByte(raw, '\\') < 0 {
		return decodedString{text: string(raw)}
	}
	text, offsets := make([]byte, 0, len(raw)), make([]uint32, 0, len(raw)+1)
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
		for len(offsets) < len(text) {
			offsets = append(offsets, uint32(begin))
		}
	}
	return decodedString{string(text), append(offsets, uint32(len(raw)))}
}

// hex4 returns the value of four hexadecimal digits.
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

// unescaped returns the character for the letter of an escape sequence.
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
	default: // a quote, backslash or slash
		return c
	}
}

// appendEscaped appends valid UTF-8 text as the content of a JSON string.
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
