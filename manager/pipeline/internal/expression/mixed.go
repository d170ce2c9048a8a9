package expression

import (
	"errors"
	"strings"
)

// mixed is text with references to secrets. The evaluator keeps apart which parts the author of
// the pipeline wrote, because only there the delegate may find a reference.
type mixed struct {
	spans []span
}

// span is a part of a mixed text. Two spans beside each other differ in trusted.
type span struct {
	text    string
	trusted bool // a reference of the evaluator, or text of the author
}

// reference returns the reference to a secret.
func reference(id string) *mixed {
	return &mixed{[]span{{referenceBegin + id + referenceEnd, true}}}
}

// The expressions of the delegate. Package secrets describes them.
const (
	referenceBegin = "${{secrets."
	referenceEnd   = "}}"
	templateBegin  = "<{"
	templateEnd    = "}>"
	encoder        = "getAsBase64"
	// separator is a reference that the delegate replaces by the empty text. It takes the
	// meaning from an expression inside which it stands.
	separator = referenceBegin + referenceEnd
)

// hasMeaning reports whether the delegate could find an expression in a text. Without these
// parts a template is data.
func hasMeaning(text string) bool {
	return strings.Contains(text, referenceBegin) || strings.Contains(text, encoder)
}

// builder builds a text from spans.
type builder struct {
	spans []span
	size  int
}

// add appends text. Empty data stays a span: it keeps apart the texts beside it, which could
// become an expression together.
func (b *builder) add(text string, trusted bool) {
	if text != "" || !trusted {
		b.spans = append(b.spans, span{text, trusted})
		b.size += len(text)
	}
}

// mixed returns the text with its origins.
func (b *builder) mixed() *mixed {
	var merged []span
	for i := 0; i < len(b.spans); {
		first := i
		for i < len(b.spans) && b.spans[i].trusted == b.spans[first].trusted {
			i++
		}
		merged = append(merged, span{join(b.spans[first:i]), b.spans[first].trusted})
	}
	return &mixed{merged}
}

// value returns the text: mixed text if the author's part has an expression for the delegate,
// otherwise a string.
func (b *builder) value() any {
	if len(b.spans) == 0 {
		return ""
	}
	text := join(b.spans)
	if !hasMeaning(text) {
		return text
	}
	m := b.mixed()
	for _, s := range m.spans {
		if s.trusted && hasMeaning(s.text) {
			return m
		}
	}
	return text
}

func join(spans []span) string {
	if len(spans) == 1 {
		return spans[0].text
	}
	n := 0
	for _, s := range spans {
		n += len(s.text)
	}
	var b strings.Builder
	b.Grow(n)
	for _, s := range spans {
		b.WriteString(s.text)
	}
	return b.String()
}

// export returns the text for a task: references in data are escaped, so that the delegate
// inserts them as they are. A reference whose begin the author wrote, and whose end is data, is an
// error.
func (m *mixed) export() (string, error) {
	text := join(m.spans)
	if !hasMeaning(text) {
		return text, nil
	}
	var b strings.Builder
	done, first, begin := 0, 0, 0 // first is the span of the offset i, begin its offset
	for i := 0; i < len(text); {
		for i >= begin+len(m.spans[first].text) {
			begin += len(m.spans[first].text)
			first++
		}
		n := expressionPart(text[i:])
		if n == 0 {
			i++
			continue
		}
		trusted, spanEnd := m.spans[first].trusted, begin+len(m.spans[first].text)
		switch {
		case trusted && i+n <= spanEnd && text[i] != '$':
			i += n
		case trusted && i+n <= spanEnd:
			end := strings.Index(text[i:spanEnd], referenceEnd)
			if end < 0 {
				return "", errors.New(`the text has a "${{secrets." whose end "}}" is not in the same text: write <+secrets.getValue("id")>`)
			}
			i += end + len(referenceEnd)
		default:
			cut := i + 1
			if i+n > spanEnd {
				cut = spanEnd
			}
			b.WriteString(text[done:cut])
			b.WriteString(separator)
			done, i = cut, cut
		}
	}
	b.WriteString(text[done:])
	return b.String(), nil
}

// expressionPart returns the length of the part of an expression of the delegate with which a
// text begins, or 0.
func expressionPart(text string) int {
	for _, s := range [...]string{referenceBegin, templateBegin, templateEnd, encoder} {
		if strings.HasPrefix(text, s) {
			return len(s)
		}
	}
	return 0
}
