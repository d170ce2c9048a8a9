package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// forms are the texts by which a value gives itself away, the value itself
// among them.
func forms(value string, minLine int) []string {
	out := escapes(value)
	out = append(out, base64Forms(value)...)
	if !strings.ContainsAny(value, "\r\n") {
		return distinct(out)
	}
	lf := strings.ReplaceAll(value, "\r\n", "\n")
	crlf := strings.ReplaceAll(lf, "\n", "\r\n")
	for _, v := range []string{lf, crlf} {
		if v != value {
			out = append(out, escapes(v)...)
			out = append(out, base64Forms(v)...)
		}
	}
	for line := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); longEnough(line, minLine, 8) {
			out = append(out, escapes(line)...)
		}
	}
	return distinct(out)
}

func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// escapes are the value and the ways to write it within other text.
func escapes(v string) []string {
	out := []string{v}
	out = append(out, jsonForms(v)...)
	out = append(out, urlForms(v)...)
	return append(out, shellForms(v)...)
}

// base64Forms are the encodings of v by itself, and those of its characters that
// v alone decides when it begins at the first, second or third byte of a group.
func base64Forms(v string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		whole := enc.EncodeToString([]byte(v))
		out = append(out, whole, strings.TrimRight(whole, "="))
		for _, width := range []int{64, 76} {
			out = append(out, wrapped(whole, width)...)
		}
		for lead := range 3 {
			padded := enc.EncodeToString(append(make([]byte, lead), v...))
			end := strings.TrimRight(padded, "=")
			// The first characters hold bits of what is before v.
			from := (lead*8 + 5) / 6
			// The last one holds bits of what is after v, unless v ends a group.
			to := (lead + len(v)) * 8 / 6
			// A form of few characters is found everywhere by accident.
			if to-from >= 6 {
				out = append(out, end[from:to])
			}
			if len(end)-from >= 6 {
				// v at the end of the encoded text: the rest is padding.
				out = append(out, end[from:], padded[from:])
			}
		}
	}
	return out
}

// wrapped are an encoding's whole and its lines when it is wrapped.
func wrapped(text string, width int) []string {
	if len(text) <= width {
		return nil
	}
	var lines []string
	for chunk := range slices.Chunk([]byte(text), width) {
		lines = append(lines, string(chunk))
	}
	out := []string{strings.Join(lines, "\n"), strings.Join(lines, "\r\n")}
	for _, l := range lines {
		if len(l) >= 16 {
			out = append(out, l)
		}
	}
	return out
}

// jsonForms are the contents of JSON strings: plain, with <, > and & escaped,
// with / escaped, and in nothing but ASCII.
func jsonForms(v string) []string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	// Without the quotes and the newline around it.
	plain := buf.String()[1 : buf.Len()-2]
	html := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(plain)
	return []string{plain, html, strings.ReplaceAll(plain, "/", `\/`), ascii(plain)}
}

func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// urlForms are the encodings of v within URLs.
func urlForms(v string) []string {
	query, path := url.QueryEscape(v), url.PathEscape(v)
	component := strings.ReplaceAll(query, "+", "%20")
	// What JavaScript's encodeURIComponent leaves alone beyond that.
	script := strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(component)
	return []string{
		query, path, component, script,
		lowerEscapes(query), lowerEscapes(path), lowerEscapes(component), lowerEscapes(script),
	}
}

// lowerEscapes turns %2F into %2f.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

// shellForms are the contents of shell words that mean v.
func shellForms(v string) []string {
	double := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")
	return []string{
		strings.ReplaceAll(v, "'", `'\''`),
		strings.ReplaceAll(v, "'", `'"'"'`),
		double.Replace(v),
		backslashed(v),
		dollarQuoted(v),
	}
}

// backslashed is how printf %q writes a word without control characters.
func backslashed(v string) string {
	var b strings.Builder
	for _, c := range []byte(v) {
		if strings.IndexByte(" \t!\"#$&'()*,;<>?[\\]^`{|}~", c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// dollarQuoted is how bash writes a word with control characters.
func dollarQuoted(v string) string {
	return strings.NewReplacer(
		`\`, `\\`, "'", `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\x1b", `\E`,
		"\a", `\a`, "\b", `\b`, "\f", `\f`, "\v", `\v`,
	).Replace(v)
}
