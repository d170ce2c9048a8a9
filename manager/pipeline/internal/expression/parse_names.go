package expression

import (
	"fmt"
	"strings"
)

// keywords are words that are no names. Those with the value false are of scripts.
var keywords = map[string]bool{
	"eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "and": true, "or": true,
	"not": true, "div": true, "mod": true, "empty": true, "size": true,
	"var": false, "let": false, "const": false, "function": false, "for": false, "while": false,
	"do": false, "if": false, "else": false, "return": false, "new": false, "break": false,
	"continue": false, "import": false, "try": false, "throw": false,
}

// refusedNames are functors that do not exist here, with what to use instead.
var refusedNames = map[string]string{
	"configFile":     noFileStore,
	"executionInput": inputValues,
	"executionTags":  "an expression does not change the run: give the run labels when it starts, and read the tags of the pipeline with pipeline.tags",
	"fileStore":      noFileStore,
	"inputSet":       inputValues,
}

const (
	noFileStore = "there is no file store, keep the file in the repository, and read it in a step"
	inputValues = "the values of inputs stand in the fields that they fill: use the name of the field, such as pipeline.variables.NAME"
)

// name parses a constant, a function call, or the begin of a dotted name.
func (p *parser) name() (node, error) {
	t := p.token
	switch t.text {
	case "null":
		return &literal{nil}, p.advance()
	case "true", "false":
		return &literal{t.text == "true"}, p.advance()
	}
	if isOperator, ok := keywords[t.text]; ok {
		if !isOperator {
			return nil, &SyntaxError{t.begin, fmt.Sprintf("%q belongs to a script, and scripts are not allowed: write one expression", t.text)}
		}
		return nil, p.unexpected("a value")
	}
	if len(p.brackets) == 0 {
		p.bare = true
	}
	if strings.HasPrefix(p.text[t.end:], opening) {
		return p.computed(nil, false)
	}
	x := &path{parts: []string{t.text}, offset: t.begin, end: t.end}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.is("(") {
		return p.function(t.text, t.begin)
	}
	if instead, ok := refusedNames[t.text]; ok && p.is(".") {
		return nil, &SyntaxError{t.begin, t.text + " is not allowed: " + instead}
	}
	for p.is(".") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		m := p.token
		if m.kind != word || strings.HasPrefix(p.text[m.end:], opening) {
			return p.dot(p.finish(x), false)
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.is("(") {
			if len(x.parts) == 1 && functorNames[x.parts[0]] {
				return p.function(x.parts[0]+"."+m.text, x.offset)
			}
			return p.call(p.finish(x), m, false)
		}
		x.parts, x.end = append(x.parts, m.text), m.end
	}
	if x.parts[0] == "secrets" {
		return nil, &SyntaxError{x.offset, `a secret is written secrets.getValue("id")`}
	}
	return p.finish(x), nil
}

// finish notes which name was probably meant if a hyphen follows a name.
func (p *parser) finish(x *path) node {
	rest := p.text[x.end:]
	if len(rest) > 1 && rest[0] == '-' && isLetter(rest[1]) {
		n := 1
		for n < len(rest) && (rest[n] == '-' || isLetter(rest[n]) || isDigit(rest[n])) {
			n++
		}
		x.hyphen = x.parts[len(x.parts)-1] + rest[:n]
	}
	return x
}

// postfix parses members, indices and method calls after a value.
func (p *parser) postfix(x node) (node, error) {
	for {
		t := p.token
		if !p.is(".", "?.", "[") {
			if p.is("(") {
				return nil, &SyntaxError{t.begin, "only functions and methods can be called"}
			}
			return x, nil
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		var err error
		if t.text != "[" {
			x, err = p.dot(x, t.text == "?.")
		} else {
			var i node
			if i, err = p.expression(); err == nil {
				x, err = &index{x, i, t.begin}, p.expect("]")
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// dot parses the member or the method after a point.
func (p *parser) dot(x node, safe bool) (node, error) {
	t := p.token
	if t.kind == begins || t.kind == word && strings.HasPrefix(p.text[t.end:], opening) {
		return p.computed(x, safe)
	}
	if t.kind != word {
		return nil, p.unexpected("a name")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.is("(") {
		return p.call(x, t, safe)
	}
	return &member{x, t.text, t.begin, safe}, nil
}

// computed parses a name that consists of words and expressions without space between them.
func (p *parser) computed(x node, safe bool) (node, error) {
	c := &computed{x: x, offset: p.token.begin, safe: safe}
	for at := p.token.begin; p.token.begin == at && (p.token.kind == begins || p.token.kind == word); {
		if p.token.kind == word {
			c.parts, at = append(c.parts, p.token.text), p.token.end
		} else {
			y, err := p.inner()
			if err != nil {
				return nil, err
			}
			c.parts, at = append(c.parts, y), p.token.end
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (p *parser) call(x node, name token, safe bool) (node, error) {
	if !methodNames[name.text] {
		return nil, &SyntaxError{name.begin, fmt.Sprintf("the method %s is not allowed%s", shorten(name.text, 40), didYouMean(name.text, sortedKeys(methodNames)))}
	}
	args, err := p.items(")")
	return &call{x, name.text, args, name.begin, safe}, err
}

func (p *parser) function(name string, offset int) (node, error) {
	f, ok := functors[name]
	if !ok {
		return nil, &SyntaxError{offset, fmt.Sprintf("the function %s is not known%s", shorten(name, 60), didYouMean(name, sortedKeys(functors)))}
	}
	args, err := p.items(")")
	if err == nil && (len(args) < f.least || len(args) > f.most) {
		err = &SyntaxError{offset, fmt.Sprintf("the function %s takes %s, not %d", name, count(f.least, f.most, "argument"), len(args))}
	}
	return &function{name, args, offset, f}, err
}
