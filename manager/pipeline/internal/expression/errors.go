package expression

import (
	"errors"
	"fmt"
	"strings"
)

// SyntaxError is an error in a text with expressions.
type SyntaxError struct {
	// Offset is the place in the text, in bytes.
	Offset int
	// Text describes the error.
	Text string
}

// Error returns the description with the offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("at byte %d: %s", e.Offset+1, e.Text)
}

// Error is an error of an evaluation. It shows no values of secrets, because the service does
// not know them.
type Error struct {
	// Offset is the place in the text, in bytes.
	Offset int
	// Expression is the outermost expression, with its delimiters.
	Expression string
	// Text describes the error.
	Text string
	// Nearest is a known name that resembles the unknown one. It may be empty.
	Nearest string
	// Unresolved reports that the error is about an unknown name or member.
	Unresolved bool
	// Via are the names of the values through which the expression was reached, the
	// outermost first. The offset belongs to the text of the last of them.
	Via []string
}

// Error returns the expression, the description and the suggestion.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Expression != "" {
		b.WriteString("expression ")
		b.WriteString(shorten(e.Expression, 200))
		b.WriteString(": ")
	}
	for _, name := range e.Via {
		b.WriteString("in the value of ")
		b.WriteString(name)
		b.WriteString(": ")
	}
	b.WriteString(e.Text)
	if e.Nearest != "" {
		b.WriteString("; did you mean ")
		b.WriteString(e.Nearest)
		b.WriteString("?")
	}
	return b.String()
}

// fail returns an error at an offset.
func fail(offset int, format string, args ...any) *Error {
	return &Error{Offset: offset, Text: fmt.Sprintf(format, args...)}
}

// isUnresolved reports whether err is about an unknown name.
func isUnresolved(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Unresolved
}

// shorten returns text, or its begin if it has more than limit bytes, without line breaks.
func shorten(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		for limit > 0 && text[limit]&0xc0 == 0x80 {
			limit--
		}
		text = text[:limit] + "..."
	}
	return text
}
