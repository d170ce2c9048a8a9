package client

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// message is what an error's body says: the field that managers put it in, or
// the beginning of the text.
func message(body []byte) string {
	var fields struct {
		ErrorMsg string `json:"error_msg"`
		Message  string `json:"message"`
	}
	// A field of another type is an error, but the others are filled in then.
	_ = json.Unmarshal(body, &fields)
	switch {
	case fields.ErrorMsg != "":
		return excerpt([]byte(fields.ErrorMsg))
	case fields.Message != "":
		return excerpt([]byte(fields.Message))
	}
	return excerpt(body)
}

// excerpt is the beginning of a text on one line, fit for a log: no control
// characters, no half characters.
func excerpt(b []byte) string {
	const most = 300
	cut := len(b) > most
	if cut {
		b = b[:most]
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
