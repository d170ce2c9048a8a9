package endtoend_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// This file computes the forms that package secrets promises to find a second time, without
// that package. So the test notices a form that the package misses.

// form is a text that reveals a value.
type form struct{ name, text string }

// forms returns the forms that secrets/doc.go promises to mask. A program may print each of
// them alone.
func forms(value string) []form {
	list := plainForms(value)
	if strings.ContainsAny(value, "\r\n") {
		lf := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(value)
		for end, name := range map[string]string{"\n": "LF", "\r\n": "CRLF", "\r": "CR", "\r\r\n": "CR CR LF"} {
			list = append(list, form{name, strings.ReplaceAll(lf, "\n", end)})
		}
		crlf := strings.ReplaceAll(lf, "\n", "\r\n")
		list = append(list, encodings(lf)...)
		list = append(list, encodings(crlf)...)
		for line := range strings.SplitSeq(lf, "\n") {
			if len(line) >= 8 {
				list = append(list, plainForms(line)...)
			}
		}
		return list
	}
	return append(list, encodings(value)...)
}

// plainForms returns a value and its notations within other text.
func plainForms(v string) []form {
	inJSON := func(html bool) string {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(html)
		_ = e.Encode(v) // a string always encodes
		return strings.TrimSuffix(strings.TrimSpace(text.String()), `"`)[1:]
	}
	js := inJSON(false)
	python := strings.Trim(strconv.QuoteToASCII("x"+v), `"`)[1:]
	if strings.ContainsAny(v, "\r\n") {
		python = js // the same except for other characters
	}
	list := []form{
		{"plain", v}, {"JSON of Go", inJSON(true)}, {"JSON of JavaScript", js}, {"JSON of Python", python},
		{"JSON of PHP", strings.ReplaceAll(python, "/", `\/`)}, {"JSON with slashes escaped", strings.ReplaceAll(js, "/", `\/`)},
	}
	lower := func(s string) string {
		b := []byte(s)
		for i := range b {
			if i > 0 && b[i-1] == '%' || i > 1 && b[i-2] == '%' {
				b[i] = strings.ToLower(string(b[i]))[0]
			}
		}
		return string(b)
	}
	for name, encoded := range map[string]string{
		"query": url.QueryEscape(v), "path": url.PathEscape(v), "component": strings.ReplaceAll(url.QueryEscape(v), "+", "%20"),
	} {
		list = append(list, form{"URL " + name, encoded}, form{"URL " + name + " in lower case", lower(encoded)})
	}
	return append(list,
		form{"in single quotes", strings.ReplaceAll(v, "'", `'\''`)},
		form{"in single quotes, traced", strings.ReplaceAll(v, "'", `'"'"'`)},
		form{"in double quotes", strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(v)},
	)
}

// encodings returns the encodings that make a value unreadable for people.
func encodings(v string) (list []form) {
	for lead := range 3 {
		all := base64.StdEncoding.EncodeToString([]byte("xx"[:min(lead, 2)] + v + "yz"))
		// The part of the encoding that depends on the value only.
		core := all[(lead*8+5)/6 : (lead+len(v))*8/6]
		list = append(list,
			form{fmt.Sprintf("base64 at %d", lead), core},
			form{fmt.Sprintf("base64 for URLs at %d", lead), strings.NewReplacer("+", "-", "/", "_").Replace(core)})
	}
	padded := base64.StdEncoding.EncodeToString([]byte(v))
	for _, width := range []int{64, 76} {
		for line := range strings.SplitSeq(wrap(padded, width), "\n") {
			if len(line) >= 16 {
				list = append(list, form{fmt.Sprintf("a line of base64 in %d columns", width), line})
			}
		}
	}
	digits := hex.EncodeToString([]byte(v))
	return append(list, form{"hexadecimal", digits}, form{"hexadecimal in upper case", strings.ToUpper(digits)},
		form{"a line of xxd -p", digits[:min(60, len(digits))]})
}

func wrap(text string, width int) string {
	var lines []string
	for ; len(text) > width; text = text[width:] {
		lines = append(lines, text[:width])
	}
	return strings.Join(append(lines, text), "\n")
}

// needles are the texts that a hunt looks for.
type needles struct {
	byHead map[uint64][]needle // by their first eight bytes
	known  map[string]bool
}

type needle struct{ name, text string }

// fragment is the length, in bytes, of a part of a value's text that counts as a leak: a
// truncated secret must not be visible either.
const fragment = 12

func (n *needles) add(secret, value string) {
	if n.byHead == nil {
		n.byHead, n.known = map[uint64][]needle{}, map[string]bool{}
	}
	put := func(name, text string) {
		if len(text) >= fragment && !n.known[text] {
			n.known[text] = true
			head := binary.NativeEndian.Uint64([]byte(text))
			n.byHead[head] = append(n.byHead[head], needle{secret + ", " + name, text})
		}
	}
	for _, f := range forms(value) {
		put(f.name, f.text)
	}
	for line := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if strings.Contains(line, "FAKE KEY") {
			continue // an empty form
		}
		for i := range max(0, len(line)-fragment+1) {
			put("a part", line[i:i+fragment])
		}
	}
}

// find returns the first needle of each secret in text, with the surrounding text.
func (n *needles) find(text []byte) (found []needle) {
	reported := map[string]bool{}
	for i := 0; i+8 <= len(text); i++ {
		for _, have := range n.byHead[binary.NativeEndian.Uint64(text[i:])] {
			if len(text)-i >= len(have.text) && string(text[i:i+len(have.text)]) == have.text && !reported[have.name] {
				reported[have.name] = true
				found = append(found, needle{have.name, string(text[max(0, i-40):min(len(text), i+len(have.text)+20)])})
			}
		}
	}
	return found
}

// The hunt finds every form, and the remaining part of a truncated value.
func TestTheNeedlesAreFound(t *testing.T) {
	t.Parallel()
	for name, value := range fakes() {
		var n needles
		n.add(name, value)
		for _, f := range forms(value) {
			if len(f.text) >= fragment {
				assert.NotEmpty(t, n.find([]byte("before "+f.text+" after")), "%s: %s", name, f.name)
			}
		}
		assert.NotEmpty(t, n.find([]byte("a name: "+value[len(value)-fragment-30:len(value)-30])), name)
		assert.Empty(t, n.find([]byte("the value of "+name+" is ****** and nothing else")), name)
	}
}
