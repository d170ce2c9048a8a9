package connector

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// oneLine returns a text of a server without control characters, and its beginning if it is longer
// than most bytes.
func oneLine(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "..."
}
