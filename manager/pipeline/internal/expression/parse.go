package expression

import "fmt"

const (
	maxTokens  = 10000 // of one expression
	maxNesting = 100   // brackets and expressions inside each other
)

// parser parses one expression of a text. Its methods are named after the operators, from the
// one that binds least to the one that binds most.
type parser struct {
	text     string
	at       int
	token    token
	brackets []int
	tokens   int
	nesting  int
	// condition reports that the text is a condition. Its outermost expressions are
	// recorded.
	condition bool
	// bare is set if a name stands outside of all delimiters.
	bare bool
}

// delimited parses the expression with delimiters that begins at an offset. It returns the
// offset after its end.
func (p *parser) delimited(begin int) (node, int, error) {
	p.at = begin
	if err := p.advance(); err != nil {
		return nil, 0, err
	}
	x, err := p.inner()
	return x, p.token.end, err
}

// inner parses the expression after the current "<+". Afterwards the current token is the ">".
func (p *parser) inner() (node, error) {
	begin := p.token.begin
	if isInput(p.text[begin:]) {
		return nil, &SyntaxError{begin, "a runtime input is not allowed inside an expression: define a variable with the input, and use the variable"}
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.token.kind == ends {
		return nil, &SyntaxError{begin, "the expression is empty"}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	if p.token.kind != ends {
		return nil, p.unexpected(`">"`)
	}
	return x, nil
}

func (p *parser) enter() error {
	if p.nesting++; p.nesting > maxNesting {
		return &SyntaxError{p.token.begin, fmt.Sprintf("the expression is nested more than %d deep", maxNesting)}
	}
	return nil
}

func (p *parser) leave() { p.nesting-- }

// is reports whether the current token is one of the symbols.
func (p *parser) is(symbols ...string) bool {
	if p.token.kind == symbol {
		for _, s := range symbols {
			if p.token.text == s {
				return true
			}
		}
	}
	return false
}

// expect consumes a symbol.
func (p *parser) expect(s string) error {
	if !p.is(s) {
		return p.unexpected(`"` + s + `"`)
	}
	return p.advance()
}

func (p *parser) unexpected(want string) error {
	t := p.token
	switch t.kind {
	case end:
		return &SyntaxError{t.begin, "the expression ends too early: " + want + " is missing"}
	case ends:
		return &SyntaxError{t.begin, want + ` is missing before ">", which ends the expression: to compare, write gt, or put the comparison in brackets`}
	}
	return &SyntaxError{t.begin, fmt.Sprintf("%s is missing before %q", want, shorten(t.text, 40))}
}

// expression parses a ternary or a default, which are the operators that bind least.
func (p *parser) expression() (node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.chain(0)
	if err != nil || p.token.kind != symbol {
		return x, err
	}
	offset := p.token.begin
	switch operator := p.token.text; operator {
	case "?":
		if err := p.advance(); err != nil {
			return nil, err
		}
		yes, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		no, err := p.expression()
		return &ternary{x, yes, no}, err
	case "?:", "??":
		if err := p.advance(); err != nil {
			return nil, err
		}
		y, err := p.expression()
		if operator == "?:" {
			return &ternary{x, nil, y}, err
		}
		return &binary{operator, x, y, offset}, err
	}
	return x, nil
}

// level is a set of binary operators that bind equally.
type level struct {
	operators map[string]string // the token and the operator that it means
	chained   bool              // a op b op c is allowed
}

var levels = [...]level{
	{map[string]string{"||": "||", "or": "||"}, true},
	{map[string]string{"&&": "&&", "and": "&&"}, true},
	{map[string]string{"==": "==", "eq": "==", "!=": "!=", "ne": "!="}, false},
	{map[string]string{
		"<": "<", "lt": "<", "<=": "<=", "le": "<=", ">": ">", "gt": ">", ">=": ">=", "ge": ">=",
		"=~": "=~", "!~": "!~", "=^": "=^", "!^": "!^", "=$": "=$", "!$": "!$",
	}, false},
	{map[string]string{"+": "+", "-": "-"}, true},
	{map[string]string{"*": "*", "/": "/", "div": "/", "%": "%", "mod": "%"}, true},
}

// chain parses the binary operators of a level and of those that bind more.
func (p *parser) chain(n int) (node, error) {
	if n == len(levels) {
		return p.unary()
	}
	x, err := p.chain(n + 1)
	for times := 0; err == nil; times++ {
		operator, ok := p.operator(levels[n])
		if !ok {
			return x, nil
		}
		offset := p.token.begin
		if times > 0 && !levels[n].chained {
			return nil, &SyntaxError{offset, "comparisons are not chained: put one of them in brackets, or join them with &&"}
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		var y node
		y, err = p.chain(n + 1)
		x = &binary{operator, x, y, offset}
	}
	return nil, err
}

// operator returns the operator of a level that the current token means.
func (p *parser) operator(l level) (string, bool) {
	if p.token.kind != symbol && p.token.kind != word {
		return "", false
	}
	operator, ok := l.operators[p.token.text]
	return operator, ok
}

func (p *parser) unary() (node, error) {
	offset, operator := p.token.begin, p.token.text
	switch {
	case p.is("!", "-", "+"):
	case p.token.kind == word && operator == "not":
		operator = "!"
	case p.token.kind == word && (operator == "empty" || operator == "size"):
	default:
		x, err := p.primary()
		if err != nil {
			return nil, err
		}
		return p.postfix(x)
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return nil, err
	}
	x, err := p.unary()
	return &unary{operator, x, offset}, err
}

func (p *parser) primary() (node, error) {
	t := p.token
	switch t.kind {
	case constant:
		return t.value, p.advance()
	case begins:
		outermost := p.condition && len(p.brackets) == 1
		x, err := p.inner()
		if err != nil {
			return nil, err
		}
		if outermost {
			x = &delimited{x, t.begin, p.token.end}
		}
		return x, p.advance()
	case word:
		return p.name()
	case symbol:
		switch t.text {
		case "(":
			if err := p.advance(); err != nil {
				return nil, err
			}
			x, err := p.expression()
			if err != nil {
				return nil, err
			}
			return x, p.expect(")")
		case "[":
			items, err := p.items("]")
			return &list{items: items}, err
		case "{":
			return p.braces()
		}
	}
	return nil, p.unexpected("a value")
}

// items parses expressions that are separated by commas, from the opening bracket to the closing
// one.
func (p *parser) items(closing string) ([]node, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	var items []node
	for !p.is(closing) {
		if len(items) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return items, p.advance()
}

// braces parses a map {a: b}, an empty map {:}, or a set {a, b}.
func (p *parser) braces() (node, error) {
	m := &mapping{offset: p.token.begin}
	set := &list{set: true}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.is(":") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		return m, p.expect("}")
	}
	for first := true; !p.is("}"); first = false {
		if !first {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		switch {
		case p.is(":") && len(set.items) == 0:
			if err := p.advance(); err != nil {
				return nil, err
			}
			y, err := p.expression()
			if err != nil {
				return nil, err
			}
			m.keys, m.values = append(m.keys, x), append(m.values, y)
		case len(m.keys) > 0:
			return nil, p.unexpected(`":"`)
		default:
			set.items = append(set.items, x)
		}
	}
	if len(m.keys) > 0 {
		return m, p.advance()
	}
	return set, p.advance()
}
