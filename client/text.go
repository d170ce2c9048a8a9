package client

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// messageOf returns the message in the body of an error answer: the member that
// managers use, or the beginning of the text.
func messageOf(body []byte) string {
	var fields struct {
		ErrorMsg string `json:"error_msg"`
		Message  string `json:"message"`
	}
	// If a member has another type, Unmarshal returns an error and sets the others.
	_ = json.Unmarshal(body, &fields)
	switch {
	case fields.ErrorMsg != "":
		return excerpt([]byte(fields.ErrorMsg))
	case fields.Message != "":
		return excerpt([]byte(fields.Message))
	}
	return excerpt(body)
}

// excerpt returns the beginning of a text as one line without control characters,
// for a log.
func excerpt(b []byte) string {
	const maxExcerpt = 300 // bytes
	cut := len(b) > maxExcerpt
	if cut {
		b = b[:maxExcerpt]
		for len(b) > 0 && !utf8.RuneStart(b[len(b)-1]) {
			b = b[:len(b)-1]
		}
		if len(b) > 0 && b[len(b)-1] >= utf8.RuneSelf {
			b = b[:len(b)-1]
		}
	}
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
	s = strings.Join(strings.Fields(s), " ")
	if cut {
		s += "..."
	}
	return s
}
