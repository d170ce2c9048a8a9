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

// Each bit stands for an encoding that changes a byte.
const (
	inJSON      = 1 << iota // quotes and backslashes; it also changes inControl and inUnicode
	inHTML                  // JSON for HTML
	inSlash                 // the slash: some JSON encoders write \/
	inDotNet                // JSON of .NET
	inQuery                 // queries of URLs
	inPath                  // paths of URLs
	inComponent             // encodeURIComponent of JavaScript
	inSingle                // a shell word in single quotes
	inDouble                // a shell word in double quotes
	inBackslash             // printf %q of bash
	inDollar                // a shell word in $''
	inControl               // control characters
	inUnicode               // bytes beyond ASCII
	inEntity                // HTML and XML
	inCSV                   // a field in CSV
	inQuoted                // quoted-printable
)

const unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~"

// changedBy has the bits of each byte.
var changedBy = func() (t [256]uint16) {
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
	mark(inDotNet, "\"'<>&+`\\")
	mark(inSingle, "'")
	mark(inDouble, "\\\"$`")
	mark(inBackslash, " \t!\"#$&'()*,;<>?[\\]^`{|}~")
	mark(inEntity, `&<>"'`)
	mark(inCSV, `"`)
	mark(inQuoted, "=")
	mark(inDollar, "\\'\n\r\t\x1b\a\b\f\v")
	return t
}()

// escapeTable has the replacement of each byte, at most seven bytes, the first one
// lowest. The highest byte is the length of the replacement.
type escapeTable [256]uint64

// newEscapeTable returns a table in which escape replaces the bytes that have one of
// the bits. All other bytes stand for themselves.
func newEscapeTable(bits uint16, escape func(b []byte, c byte) []byte) *escapeTable {
	var t escapeTable
	for c := range t {
		b := []byte{byte(c)}
		if changedBy[c]&bits != 0 {
			b = escape(b[:0], byte(c))
		}
		t[c] = load(b) | uint64(len(b))<<56
	}
	return &t
}

// escapeTables has all tables. They are made for the first value that needs one.
type escapeTables struct {
	json, html, slash, dotNet      *escapeTable
	query, form, path, component   [2]*escapeTable // with digits in upper and in lower case
	single, quoted, double, printf *escapeTable
	dollar, octal                  *escapeTable
	entity                         [5]*escapeTable // of Go, jq and Python, and XML without quotes
	quotePrintable                 *escapeTable
	pathPython                     [2]*escapeTable // urllib.parse.quote leaves slashes
	csv, python, pythonQuoted      *escapeTable
}

var allEscapeTables = sync.OnceValue(func() *escapeTables {
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
	t := &escapeTables{
		json:   newEscapeTable(inJSON, backslash),
		html:   newEscapeTable(inHTML, func(b []byte, c byte) []byte { return fmt.Appendf(b, `\u%04x`, c) }),
		slash:  newEscapeTable(inSlash, backslash),
		dotNet: newEscapeTable(inDotNet, escapeDotNet),
		single: newEscapeTable(inSingle, func(b []byte, _ byte) []byte { return append(b, `'\''`...) }),
		quoted: newEscapeTable(inSingle, func(b []byte, _ byte) []byte { return append(b, `'"'"'`...) }),
		double: newEscapeTable(inDouble, backslash),
		printf: newEscapeTable(inBackslash, backslash),
		dollar: newEscapeTable(inDollar, dollar),
		// bash writes control characters this way, and all characters that the
		// locale does not have.
		octal: newEscapeTable(inDollar|inControl|inUnicode, func(b []byte, c byte) []byte {
			if changedBy[c]&inDollar != 0 {
				return dollar(b, c)
			}
			return fmt.Appendf(b, `\%03o`, c)
		}),
	}
	for i, quotes := range [][2]string{{"&#34;", "&#39;"}, {"&quot;", "&#39;"}, {"&quot;", "&#x27;"}, {"&quot;", "&apos;"}, {`"`, "'"}} {
		t.entity[i] = newEscapeTable(inEntity, func(b []byte, c byte) []byte { return append(b, entity(c, quotes)...) })
	}
	t.quotePrintable = newEscapeTable(inQuoted|inUnicode, func(b []byte, c byte) []byte { return append(b, '=', hexUpper[c>>4], hexUpper[c&15]) })
	t.csv = newEscapeTable(inCSV, func(b []byte, c byte) []byte { return append(b, c, c) })
	t.python = newEscapeTable(inJSON|inControl|inUnicode, func(b []byte, c byte) []byte { return python(b, c) })
	t.pythonQuoted = newEscapeTable(inJSON|inSingle|inControl|inUnicode, func(b []byte, c byte) []byte { return python(b, c) })
	for c := range t.python {
		if c == '"' { // Python prefers single quotes around a string
			t.python[c], t.pythonQuoted[c] = '"'|1<<56, '"'|1<<56
		}
	}
	for i, digits := range []string{hexUpper, hexLower} {
		t.query[i] = newEscapeTable(inQuery, percent(digits))
		t.form[i] = newEscapeTable(inQuery, plus(digits))
		t.pathPython[i] = newEscapeTable(inQuery, percent(digits))
		t.pathPython[i]['/'] = '/' | 1<<56
		t.path[i] = newEscapeTable(inPath, percent(digits))
		t.component[i] = newEscapeTable(inComponent, percent(digits))
	}
	return t
})

// escapeBits returns the bits of all bytes of text.
func escapeBits(text string) (bits uint16) {
	for i := range len(text) {
		bits |= changedBy[text[i]]
	}
	return bits
}

// addEscapes adds a text and its escaped forms within JSON, URLs and shell words.
func (b *formBuilder) addEscapes(text string) {
	b.group = b.out.len()
	b.addAlways(text)
	v := b.out.at(b.group)
	bits := escapeBits(text)
	if bits == 0 {
		return
	}
	t := allEscapeTables()
	b.addJSON(v, bits, t)
	b.addURL(v, bits, t)
	b.addShell(v, bits, t)
	b.addMarkup(v, bits, t)
	b.addPython(v, bits, t)
}

// addMarkup adds the content of HTML, XML, CSV and quoted-printable.
func (b *formBuilder) addMarkup(v []byte, bits uint16, t *escapeTables) {
	if bits&inEntity != 0 {
		for _, e := range t.entity {
			b.addEscaped(v, e)
		}
	}
	if bits&inCSV != 0 {
		b.addEscaped(v, t.csv)
	}
	if bits&(inQuoted|inUnicode) != 0 {
		b.addEscaped(v, t.quotePrintable)
	}
}

// entity returns c as HTML writes it.
func entity(c byte, quotes [2]string) string {
	switch c {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	case '"':
		return quotes[0]
	default:
		return quotes[1]
	}
}

// addPython adds the results of repr and ascii in Python for a string and for bytes.
func (b *formBuilder) addPython(v []byte, bits uint16, t *escapeTables) {
	if bits&(inJSON|inSingle|inControl|inUnicode) == 0 {
		return
	}
	for _, table := range []*escapeTable{t.python, t.pythonQuoted} {
		b.addEscaped(v, table) // bytes
		if bits&inUnicode == 0 {
			continue
		}
		var plain, escaped []byte
		for _, r := range string(v) {
			switch {
			case r < utf8.RuneSelf:
				word := table[r]
				for i := range word >> 56 {
					plain, escaped = append(plain, byte(word>>(8*i))), append(escaped, byte(word>>(8*i)))
				}
				continue
			case r <= 0xff:
				escaped = fmt.Appendf(escaped, `\x%02x`, r)
			case r <= 0xffff:
				escaped = fmt.Appendf(escaped, `\u%04x`, r)
			default:
				escaped = fmt.Appendf(escaped, `\U%08x`, r)
			}
			plain = utf8.AppendRune(plain, r)
		}
		b.add(string(plain))
		b.add(string(escaped))
	}
}

// python appends c as Python writes it in a string.
func python(b []byte, c byte) []byte {
	if i := strings.IndexByte("\n\r\t\\'", c); i >= 0 {
		return append(b, '\\', "nrt\\'"[i])
	}
	return fmt.Appendf(b, `\x%02x`, c)
}

// addJSON adds the content of JSON strings: plain, with <, > and & escaped, with /
// escaped, in the style of .NET, and in ASCII only.
func (b *formBuilder) addJSON(v []byte, bits uint16, t *escapeTables) {
	plain := v
	switch {
	case bits&(inControl|inUnicode) != 0:
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if enc.Encode(string(v)) != nil {
			return
		}
		// Encode has added quotes and a newline.
		plain = buf.Bytes()[1 : buf.Len()-2]
		b.add(string(plain))
		b.add(ascii(string(plain), `\u%04x`))
	case bits&inJSON != 0:
		plain = b.write(v, t.json)
		b.finish()
	}
	if bits&inHTML != 0 {
		b.addEscaped(plain, t.html)
	}
	if bits&inSlash != 0 {
		b.addEscaped(plain, t.slash)
		if bits&inUnicode != 0 { // the default of PHP
			b.add(strings.ReplaceAll(ascii(string(plain), `\u%04x`), "/", `\/`))
		}
	}
	if bits&(inDotNet|inUnicode) != 0 && bits&inControl == 0 {
		text := b.write(v, t.dotNet)
		if bits&inUnicode != 0 {
			b.out.discard()
			b.add(ascii(string(text), `\u%04X`))
		} else {
			b.finish()
		}
	}
}

// escapeDotNet appends c as .NET writes it in JSON.
func escapeDotNet(b []byte, c byte) []byte {
	if c == '\\' {
		return append(b, `\\`...)
	}
	return append(b, '\\', 'u', '0', '0', hexUpper[c>>4], hexUpper[c&15])
}

// addURL adds the encodings in URLs.
func (b *formBuilder) addURL(v []byte, bits uint16, t *escapeTables) {
	space := bytes.IndexByte(v, ' ') >= 0
	for i := range t.query {
		if bits&inQuery != 0 {
			b.addEscaped(v, t.query[i])
			b.addEscaped(v, t.pathPython[i])
		}
		if space {
			b.addEscaped(v, t.form[i])
		}
		if bits&inPath != 0 {
			b.addEscaped(v, t.path[i])
		}
		if bits&inComponent != 0 {
			b.addEscaped(v, t.component[i])
		}
	}
}

const (
	hexUpper = "0123456789ABCDEF"
	hexLower = "0123456789abcdef"
)

// addShell adds the content of shell words for v, also as shells trace commands.
func (b *formBuilder) addShell(v []byte, bits uint16, t *escapeTables) {
	if bits&inSingle != 0 {
		b.addEscaped(v, t.single)
		b.addEscaped(v, t.quoted)
	}
	if bits&inDouble != 0 {
		b.addEscaped(v, t.double)
	}
	if bits&inBackslash != 0 {
		b.addEscaped(v, t.printf)
	}
	if bits&inDollar != 0 {
		b.addEscaped(v, t.dollar)
	}
	if bits&(inControl|inUnicode) != 0 {
		b.addEscaped(v, t.octal)
	}
}

func backslash(b []byte, c byte) []byte { return append(b, '\\', c) }

// dollar appends c as bash writes it in dollar quotes.
func dollar(b []byte, c byte) []byte {
	if i := strings.IndexByte("\n\r\t\x1b\a\b\f\v", c); i >= 0 {
		c = "nrtEabfv"[i]
	}
	return append(b, '\\', c)
}

// addEscaped adds v as a table escapes it, unless the group has that form.
func (b *formBuilder) addEscaped(v []byte, t *escapeTable) {
	b.write(v, t)
	b.finish()
}

// write appends v, escaped, to the unfinished form in out, and returns it.
func (b *formBuilder) write(v []byte, t *escapeTable) []byte {
	from := len(b.out.bytes)
	buf := slices.Grow(b.out.bytes, 8*len(v))
	buf = buf[:cap(buf)]
	at := from
	for _, c := range v {
		word := t[c]
		binary.LittleEndian.PutUint64(buf[at:], word)
		at += int(word >> 56)
	}
	b.out.bytes = buf[:at]
	return buf[from:at]
}

// ascii replaces each character beyond ASCII by its UTF-16 code units in format.
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
