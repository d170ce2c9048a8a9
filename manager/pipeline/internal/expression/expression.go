package expression

import (
	"strings"
	"time"
)

// Environment is the surroundings of an evaluation. A Template or a Condition may be evaluated
// in several environments at the same time.
type Environment struct {
	// Scope resolves names. Nil knows no names.
	Scope Scope
	// Time is the time of currentDate and currentTime. It is fixed for a run, so that each
	// evaluation of an expression gives the same value.
	Time time.Time
	// Limits bounds the evaluation.
	Limits Limits
	// Secrets is the treatment of secrets.
	Secrets SecretMode
	// Record is called after each outermost expression of a text or a condition. Nil records
	// nothing.
	Record func(Evaluated)
}

// Limits bounds one call of Render, Evaluate or Decide. A field that is 0 has its default.
type Limits struct {
	// Steps is the number of operations. The default is 100,000.
	Steps int
	// Bytes is the size of all values that the evaluation makes, together. The default is
	// 6 MiB.
	Bytes int
	// ValueBytes is the size of one text. The default is 256 KiB.
	ValueBytes int
	// Depth is how deep values of type Text may refer to each other. The default is 15.
	Depth int
}

// SecretMode is the treatment of secrets.
type SecretMode int

// The treatments of secrets.
const (
	// Late makes a secret the reference ${{secrets.<id>}}, which the delegate resolves.
	// Data that looks like such a reference is escaped, so that the delegate inserts it as
	// it is. The escapes are those of package secrets. A value that was rendered in this
	// mode belongs into the payload of a task, and nowhere else. Rendered values are not
	// joined without a text between them: together they could become a reference.
	Late SecretMode = iota
	// Refuse makes a secret an error. Data is not escaped.
	Refuse
)

// Scope resolves the first part of a dotted name, as seen from a node outwards. A value is nil,
// a bool, an integer, a float, a string, a []any, a map[string]any, an [Object], a [Text] or a
// [Secret]. The value nil is null: each member of it is null too.
type Scope interface {
	Lookup(name string) (any, bool)
	// Names lists the known names, for the suggestion in the error about an unknown name.
	Names() []string
}

// Object is a value with members that are made when they are needed.
type Object interface {
	Member(name string) (any, bool)
	// Names lists the known members, for the suggestion in the error about an unknown one.
	Names() []string
}

// Text is text that the author of the pipeline wrote, for example the value of a variable. It
// is rendered when it is used. A plain string is data and never parsed.
type Text struct {
	Value string
}

// Secret is the value of a variable of type Secret. ID identifies the secret.
type Secret struct {
	ID string
}

// Evaluated is the result of an outermost expression.
type Evaluated struct {
	// Text is the expression with its delimiters, Offset its place in the text, in bytes.
	Text   string
	Offset int
	// Value is the value, not escaped. A secret is its reference, and a value of type
	// Object is nil.
	Value any
	// Source names the values that were read, separated by commas.
	Source string
	Err    error
}

// Template is a text with expressions.
type Template struct {
	text     string
	parts    []part
	warnings []Warning
}

// part is literal text, or an expression if node is not nil. It is text[begin:end].
type part struct {
	begin, end int
	node       node
}

// Warning is a place of a text that is probably a mistake.
type Warning struct {
	// Offset is the place in the text, in bytes.
	Offset int
	// Code is a stable word for programs.
	Code string
	Text string
}

// Reference is a name or a secret in a text.
type Reference struct {
	// Name is the dotted name as far as it is known before the evaluation, or the id of the
	// secret. It is empty if an expression makes it.
	Name string
	// Offset is the place in the text, in bytes.
	Offset int
	// Secret reports that Name identifies a secret.
	Secret bool
	// Partial reports that an expression makes the rest of Name.
	Partial bool
	// Optional reports that the name may be unknown, as in <+a.b ?? "none">.
	Optional bool
}

// Parse parses a text with expressions. An error is a [*SyntaxError].
func Parse(text string) (*Template, error) {
	t := &Template{text: text}
	if len(text) > maxText {
		return nil, &SyntaxError{Text: "the text is longer than 6 MiB"}
	}
	var unended []bool // marks the offsets of expressions without an end; nil if not known yet
	literal := 0
	for i := 0; ; {
		n := strings.Index(text[i:], opening)
		if n < 0 {
			break
		}
		begin := i + n
		i = begin + len(opening)
		if isInput(text[begin:]) {
			continue
		}
		if unended != nil && unended[begin] {
			t.warnings = append(t.warnings, unfinished(begin))
			continue
		}
		p := parser{text: text}
		expr, end, err := p.delimited(begin)
		if err != nil {
			if unended == nil {
				unended = unfinishedExpressions(text)
			}
			if !unended[begin] {
				return nil, err
			}
			t.warnings = append(t.warnings, unfinished(begin))
			continue
		}
		if begin > literal {
			t.parts = append(t.parts, part{begin: literal, end: begin})
		}
		t.parts = append(t.parts, part{begin: begin, end: end, node: expr})
		i, literal = end, end
	}
	if literal < len(text) {
		t.parts = append(t.parts, part{begin: literal, end: len(text)})
	}
	return t, nil
}

// Literal returns the text if it has no expression.
func (t *Template) Literal() (string, bool) {
	for _, p := range t.parts {
		if p.node != nil {
			return "", false
		}
	}
	return t.text, true
}

// References returns the names and the secrets that the expressions use, in their order.
func (t *Template) References() []Reference {
	var c collector
	for _, p := range t.parts {
		if p.node != nil {
			c.visit(p.node, false)
		}
	}
	return c.found
}

// Warnings returns the warnings about the text, in their order.
func (t *Template) Warnings() []Warning { return t.warnings }

// Render evaluates the expressions. A text that is exactly one expression has the value of this
// expression, with its type. Otherwise the value is a string. An error is an [*Error].
func (t *Template) Render(env *Environment) (any, error) {
	if text, ok := t.Literal(); ok {
		return text, nil
	}
	ev := newEvaluation(env)
	v, err := ev.render(t, true)
	if err != nil {
		return nil, err
	}
	return ev.export(v, t.text)
}

const (
	opening = "<+"
	closing = '>'
	maxText = 6 << 20 // bytes
)

// isInput reports whether text begins with a runtime input, which is no expression. Package
// definition replaces it.
func isInput(text string) bool {
	rest, ok := strings.CutPrefix(text, opening+"input")
	return ok && strings.HasPrefix(rest, ">")
}

func unfinished(offset int) Warning {
	return Warning{offset, "unfinished-expression", `the expression has no end: it stays as it is; write ">" at its end`}
}

// unfinishedExpressions marks the offsets where an expression begins that has no end.
func unfinishedExpressions(text string) []bool {
	marks := make([]bool, len(text))
	var open []int
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], opening):
			marks[i], open = true, append(open, i)
			i++
		case text[i] == closing && len(open) > 0:
			marks[open[len(open)-1]], open = false, open[:len(open)-1]
		}
	}
	return marks
}
