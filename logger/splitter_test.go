package logger

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func cutUp(maximum int, writes ...string) []string {
	c := lineSplitter{max: maximum}
	var out []string
	emit := func(p []byte) { out = append(out, string(p)) }
	for _, w := range writes {
		c.write([]byte(w), emit)
	}
	c.flush(emit)
	return out
}

// Rule L2: a last line without a newline is not lost.
func TestSplitterSplitsLines(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want []string }{
		"lines":                       {[]string{"a\nb\n"}, []string{"a\n", "b\n"}},
		"last line without newline":   {[]string{"a\nb"}, []string{"a\n", "b"}},
		"a line over writes":          {[]string{"a", "b", "c\nd"}, []string{"abc\n", "d"}},
		"CRLF":                        {[]string{"a\r", "\nb\r\n"}, []string{"a\r\n", "b\r\n"}},
		"empty lines":                 {[]string{"\n\n", ""}, []string{"\n", "\n"}},
		"nothing":                     {nil, nil},
		"a line of the maximum":       {[]string{"1234567\n"}, []string{"1234567\n"}},
		"a line that is too long":     {[]string{"123456789\nx"}, []string{"12345678", "9\n", "x"}},
		"much too long":               {[]string{"12345678123456781"}, []string{"12345678", "12345678", "1"}},
		"between characters":          {[]string{"1234567é89\n"}, []string{"1234567", "é89\n"}},
		"between long characters":     {[]string{"12345😀678\n"}, []string{"12345", "😀678\n"}},
		"bytes that are no character": {[]string{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\n"}, []string{"\x80\x80\x80\x80\x80\x80\x80\x80", "\x80\n"}},
	} {
		assert.Equal(t, tt.want, cutUp(8, tt.in...), name)
	}
}

func FuzzCutter(f *testing.F) {
	f.Add("a\nb\r\nlonger than eight é😀\n", 3, 8)
	f.Add("\xff\xfe\xc3", 1, 1)
	f.Fuzz(func(t *testing.T, text string, at, maximum int) {
		if maximum < 1 || maximum > 100 || at < 0 || at > len(text) {
			return
		}
		whole, cut := cutUp(maximum, text), cutUp(maximum, text[:at], text[at:])
		if strings.Join(whole, "") != text {
			t.Fatalf("bytes lost: %q from %q", whole, text)
		}
		if strings.Join(whole, "|") != strings.Join(cut, "|") {
			t.Fatalf("%q, but cut at %d %q", whole, at, cut)
		}
		for i, l := range whole {
			if len(l) > maximum || l == "" {
				t.Fatalf("line %d of %d bytes", i, len(l))
			}
			if nl := strings.IndexByte(l, '\n'); nl >= 0 && nl != len(l)-1 {
				t.Fatalf("newline within %q", l)
			}
			if maximum >= utf8.UTFMax && utf8.ValidString(text) && !utf8.ValidString(l) {
				t.Fatalf("character cut in %q", l)
			}
		}
	})
}
