package expression

import (
	"errors"
	"strings"
)

// Condition is a text that is one expression as a whole, such as the condition of a stage, or the
// items of a strategy.
type Condition struct {
	template Template
	node     node
	// text is the same text for Render. It is set if the text is rather a text with
	// expressions than one expression, for example app-<+matrix.env>.
	text *Template
	// word is a name in such a text. If it is known, the text is an expression.
	word string
}

// ParseCondition parses a condition. White space around it is ignored. An error is a
// [*SyntaxError].
func ParseCondition(text string) (*Condition, error) {
	c := &Condition{template: Template{text: text}}
	if len(text) > maxText {
		return nil, &SyntaxError{Text: "the text is longer than 6 MiB"}
	}
	trimmed := strings.TrimSpace(text)
	if strings.EqualFold(trimmed, "true") || strings.EqualFold(trimmed, "false") {
		c.node = &literal{strings.EqualFold(trimmed, "true")}
		return c, nil
	}
	p := parser{text: text, condition: true}
	err := p.advance()
	if err == nil && p.token.kind == end {
		err = &SyntaxError{Text: "the condition is empty: leave it out, or write true"}
	}
	if err == nil {
		c.node, err = p.expression()
	}
	if err == nil && p.token.kind != end {
		err = p.unexpected("an operator")
	}
	if (err != nil || p.bare) && isPlainText(trimmed) {
		if t, parseErr := Parse(trimmed); parseErr == nil && len(t.warnings) == 0 {
			c.text, c.word = t, firstWord(trimmed)
			if err != nil {
				c.word, err = "", nil
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// isPlainText reports whether a text consists of words and expressions, without operators except
// those that occur in names, versions and paths.
func isPlainText(text string) bool {
	expressions, words := 0, false
	for i := 0; i < len(text); {
		if strings.HasPrefix(text[i:], opening) {
			p := parser{text: text}
			_, end, err := p.delimited(i)
			if err != nil {
				return false
			}
			expressions++
			i = end
			if i < len(text) && text[i] == '.' { // a member or a method of the value
				return false
			}
			continue
		}
		c := text[i]
		if !isLetter(c) && !isDigit(c) && strings.IndexByte("-./:@", c) < 0 {
			return false
		}
		words = words || isLetter(c)
		i++
	}
	return expressions > 0 && words
}

// firstWord returns the first name of a text.
func firstWord(text string) string {
	n := 0
	for n < len(text) && (isLetter(text[n]) || isDigit(text[n])) {
		n++
	}
	return text[:n]
}

// Evaluate returns the value of the expression. An error is an [*Error].
func (c *Condition) Evaluate(env *Environment) (any, error) {
	ev := newEvaluation(env)
	v, err := c.evaluate(ev)
	if err != nil {
		return nil, within(err, strings.TrimSpace(c.template.text))
	}
	return ev.export(v, strings.TrimSpace(c.template.text))
}

func (c *Condition) evaluate(ev *evaluation) (any, error) {
	if c.text != nil && !c.isKnown(ev) {
		return ev.render(c.text, true)
	}
	ev.texts = append(ev.texts, &c.template)
	ev.names = append(ev.names, "the condition")
	ev.limits.Depth++
	return ev.value(c.node)
}

// isKnown reports whether the word of a text is a name of the scope.
func (c *Condition) isKnown(ev *evaluation) bool {
	if c.word == "" || ev.env.Scope == nil {
		return false
	}
	_, ok := ev.env.Scope.Lookup(c.word)
	return ok
}

// Decide returns the decision of a condition. A Boolean decides itself. The texts true and false
// are Booleans, in upper or lower case. Every other text is true, except the empty one. A number
// is true if it is not 0. The value null is an error.
func (c *Condition) Decide(env *Environment) (bool, error) {
	v, err := c.Evaluate(env)
	if err != nil {
		return false, err
	}
	switch v := v.(type) {
	case nil:
		return false, within(&Error{Text: "the value of the condition is null: compare it with null, or give a default with ??"}, strings.TrimSpace(c.template.text))
	case string:
		return v != "" && !strings.EqualFold(v, "false"), nil
	}
	yes, err := truth(v)
	var e *Error
	if err != nil && !errors.As(err, &e) {
		err = within(&Error{Text: err.Error()}, strings.TrimSpace(c.template.text))
	}
	return yes, err
}

// References returns the names and the secrets that the condition uses, in their order.
func (c *Condition) References() []Reference {
	if c.text != nil {
		return c.text.References()
	}
	var found collector
	found.visit(c.node, false)
	return found.found
}
