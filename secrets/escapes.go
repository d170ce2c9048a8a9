package secrets

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// What some way of writing text does not leave as it is: a bit for each.
const (
	inJSON      = 1 << iota // quotes and backslashes; others with inControl and inUnicode
	inHTML                  // as JSON within HTML escapes it
	inSlash                 // the slash, which some write as \/ in JSON
	inStrict                // as JSON escapes it in .NET
	inQuery                 // in URLs
	inPath                  // in URLs' paths
	inComponent             // in URLs, by JavaScript's encodeURIComponent
	inSingle                // within single quotes
	inDouble                // within double quotes
	inBackslash             // by printf %q
	inDollar                // within $''
	inControl               // control characters
	inUnicode               // beyond ASCII
)

const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~"

// escaped are the bits of each byte.
var escaped = func() (t [256]uint16) {
	mark := func(bit uint16, chars string) {
		for _, c := range []byte(chars) {
			t[c] |= bit
		}
	}
	for c := range 256 {
		switch {
		case c >= utf8.RuneSelf:
			t[c] = inUnicode
		case c < ' ' || c == 0x7f:
			t[c] = inControl
		}
		if strings.IndexByte(unreserved, byte(c)) < 0 {
			t[c] |= inQuery
			if c >= utf8.RuneSelf || strings.IndexByte("$&+=:@", byte(c)) < 0 {
				t[c] |= inPath
			}
			if c >= utf8.RuneSelf || strings.IndexByte("!'()*", byte(c)) < 0 {
				t[c] |= inComponent
			}
		}
	}
	mark(inJSON, `"\`)
	mark(inHTML, "<>&")
	mark(inSlash, "/")
	mark(inStrict, "\"'<>&+`\\")
	mark(inSingle, "'")
	mark(inDouble, "\\\"$`")
	mark(inBackslash, " \t!\"#$&'()*,;<>?[\\]^`{|}~")
	mark(inDollar, "\\'\n\r\t\x1b\a\b\f\v")
	return t
}()

// way is a way to write each byte: the bytes to write, at most seven, the first
// lowest, and above them their number.
type way [256]uint64

// wayOf writes the bytes that have one of the bits as write does, and others as
// they are.
func wayOf(bits uint16, write func(b []byte, c byte) []byte) *way {
	var w way
	for c := range w {
		b := []byte{byte(c)}
		if escaped[c]&bits != 0 {
			b = write(b[:0], byte(c))
		}
		w[c] = load(b) | uint64(len(b))<<56
	}
	return &w
}

// ways are made when a value first has something that is written otherwise.
var ways = sync.OnceValue(func() *allWays {
	percent := func(digits string) func([]byte, byte) []byte {
		return func(b []byte, c byte) []byte { return append(b, '%', digits[c>>4], digits[c&15]) }
	}
	plus := func(digits string) func([]byte, byte) []byte {
		return func(b []byte, c byte) []byte {
			if c == ' ' {
				return append(b, '+')
			}
			return percent(digits)(b, c)
		}
	}
	a := &allWays{
		json:   wayOf(inJSON, backslash),
		html:   wayOf(inHTML, func(b []byte, c byte) []byte { return fmt.Appendf(b, `\u%04x`, c) }),
		slash:  wayOf(inSlash, backslash),
		strict: wayOf(inStrict, strict),
		single: wayOf(inSingle, func(b []byte, _ byte) []byte { return append(b, `'\''`...) }),
		quoted: wayOf(inSingle, func(b []byte, _ byte) []byte { return append(b, `'"'"'`...) }),
		double: wayOf(inDouble, backslash),
		printf: wayOf(inBackslash, backslash),
		dollar: wayOf(inDollar, dollar),
		// Where the locale has none of them, or nobody could read them.
		octal: wayOf(inDollar|inControl|inUnicode, func(b []byte, c byte) []byte {
			if escaped[c]&inDollar != 0 {
				return dollar(b, c)
			}
			return fmt.Appendf(b, `\%03o`, c)
		}),
	}
	for i, digits := range []string{hexUpper, hexLower} {
		a.query[i] = wayOf(inQuery, percent(digits))
		a.form[i] = wayOf(inQuery, plus(digits))
		a.path[i] = wayOf(inPath, percent(digits))
		a.component[i] = wayOf(inComponent, percent(digits))
	}
	return a
})

type allWays struct {
	json, html, slash, strict      *way
	query, form, path, component   [2]*way // digits in upper and in lower case
	single, quoted, double, printf *way
	dollar, octal                  *way
}

// bitsOf are the bits that any of the text's bytes has.
func bitsOf(text string) (has uint16) {
	for i := range len(text) {
		has |= escaped[text[i]]
	}
	return has
}

// escapes adds a text and the ways to write it within other text.
func (m *formMaker) escapes(text string) {
	m.group = m.out.len()
	m.any(text)
	v := m.out.at(m.group)
	has := bitsOf(text)
	if has == 0 {
		return
	}
	w := ways()
	m.json(v, has, w)
	m.url(v, has, w)
	m.shell(v, has, w)
}

// json adds the contents of JSON strings: plain, with <, > and & escaped, with /
// escaped, as .NET writes it, and in nothing but ASCII.
func (m *formMaker) json(v []byte, has uint16, w *allWays) {
	plain := v
	switch {
	case has&(inControl|inUnicode) != 0:
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if enc.Encode(string(v)) != nil {
			return
		}
		// Without the quotes and the newline around it.
		plain = buf.Bytes()[1 : buf.Len()-2]
		m.add(string(plain))
		m.add(ascii(string(plain), `\u%04x`))
	case has&inJSON != 0:
		plain = m.write(v, w.json)
		m.end()
	}
	if has&inHTML != 0 {
		m.replace(plain, w.html)
	}
	if has&inSlash != 0 {
		m.replace(plain, w.slash)
		if has&inUnicode != 0 { // as PHP does by itself
			m.add(strings.ReplaceAll(ascii(string(plain), `\u%04x`), "/", `\/`))
		}
	}
	if has&(inStrict|inUnicode) != 0 && has&inControl == 0 {
		text := m.write(v, w.strict)
		if has&inUnicode != 0 {
			m.out.drop()
			m.add(ascii(string(text), `\u%04X`))
		} else {
			m.end()
		}
	}
}

// strict is how .NET writes a character in JSON.
func strict(b []byte, c byte) []byte {
	if c == '\\' {
		return append(b, `\\`...)
	}
	return append(b, '\\', 'u', '0', '0', hexUpper[c>>4], hexUpper[c&15])
}

// url adds the encodings within URLs.
func (m *formMaker) url(v []byte, has uint16, w *allWays) {
	space := bytes.IndexByte(v, ' ') >= 0
	for i := range w.query {
		if has&inQuery != 0 {
			m.replace(v, w.query[i])
		}
		if space {
			m.replace(v, w.form[i])
		}
		if has&inPath != 0 {
			m.replace(v, w.path[i])
		}
		if has&inComponent != 0 {
			m.replace(v, w.component[i])
		}
	}
}

const (
	hexUpper = "0123456789ABCDEF"
	hexLower = "0123456789abcdef"
)

// shell adds the contents of shell words that mean v, also as shells trace them.
func (m *formMaker) shell(v []byte, has uint16, w *allWays) {
	if has&inSingle != 0 {
		m.replace(v, w.single)
		m.replace(v, w.quoted)
	}
	if has&inDouble != 0 {
		m.replace(v, w.double)
	}
	if has&inBackslash != 0 {
		m.replace(v, w.printf)
	}
	if has&inDollar != 0 {
		m.replace(v, w.dollar)
	}
	if has&(inControl|inUnicode) != 0 {
		m.replace(v, w.octal)
	}
}

func backslash(b []byte, c byte) []byte { return append(b, '\\', c) }

// dollar is how bash writes a character within $”.
func dollar(b []byte, c byte) []byte {
	if i := strings.IndexByte("\n\r\t\x1b\a\b\f\v", c); i >= 0 {
		c = "nrtEabfv"[i]
	}
	return append(b, '\\', c)
}

// replace adds v as it is written in a way, unless the group has it.
func (m *formMaker) replace(v []byte, w *way) {
	m.write(v, w)
	m.end()
}

// write appends v to the last form's bytes as it is written in a way.
func (m *formMaker) write(v []byte, w *way) []byte {
	from := len(m.out.bytes)
	b := slices.Grow(m.out.bytes, 8*len(v))
	b = b[:cap(b)]
	at := from
	for _, c := range v {
		word := w[c]
		binary.LittleEndian.PutUint64(b[at:], word)
		at += int(word >> 56)
	}
	m.out.bytes = b[:at]
	return b[from:at]
}

// ascii writes what is beyond ASCII in the format given.
func ascii(text, format string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, format+format, hi, lo)
		default:
			fmt.Fprintf(&b, format, r)
		}
	}
	return b.String()
}
