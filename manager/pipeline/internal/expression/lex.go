package expression

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind int

const (
	end      kind = iota // the end of the text
	word                 // a name, a keyword, or an operator that is a word
	constant             // a number or a string
	symbol               // an operator or a bracket
	begins               // "<+"
	ends                 // the ">" at the end of an expression
)

type token struct {
	kind       kind
	text       string
	begin, end int
	value      node // of a constant
}

// symbols are the operators and brackets. A symbol stands before its prefixes.
var symbols = [...]string{
	"&&", "||", "==", "!=", "<=", ">=", "=~", "!~", "=^", "!^", "=$", "!$", "?.", "??", "?:",
	"+", "-", "*", "/", "%", "<", ">", "!", "?", ":", "(", ")", "[", "]", "{", "}", ",", ".",
}

// refused are symbols of JEXL that pipelines do not have, each with the text of the error.
var refused = map[byte]string{
	'=': `"=" assigns a value, and scripts are not allowed: compare with "=="`,
	';': `";" separates statements, and scripts are not allowed: write one expression`,
	'&': `"&" is not an operator: write "&&"`,
	'|': `"|" is not an operator: write "||"`,
	'^': `"^" is not an operator`,
	'~': `"~" is not an operator`,
	'`': "a text stands in single or double quotes",
	'#': `"#" is not allowed: an expression has no comments`,
}

// advance reads the next token. A ">" ends the expression if it stands in no bracket, because
// pipelines use it as the end. brackets has the number of open brackets for each expression that
// is not ended yet.
func (p *parser) advance() error {
	afterDot := p.token.kind == symbol && (p.token.text == "." || p.token.text == "?.")
	text := p.text
	for p.at < len(text) && strings.IndexByte(" \t\r\n", text[p.at]) >= 0 {
		p.at++
	}
	if p.tokens++; p.tokens > maxTokens {
		return &SyntaxError{p.at, fmt.Sprintf("the expression has more than %d words and operators", maxTokens)}
	}
	p.token = token{kind: end, begin: p.at, end: p.at}
	if p.at == len(text) {
		return nil
	}
	switch c := text[p.at]; {
	case strings.HasPrefix(text[p.at:], opening):
		p.take(begins, len(opening))
		p.brackets = append(p.brackets, 0)
	case isLetter(c), afterDot && isDigit(c):
		n := 1
		for p.at+n < len(text) && (isLetter(text[p.at+n]) || isDigit(text[p.at+n])) {
			n++
		}
		p.take(word, n)
	case isDigit(c):
		return p.number()
	case c == '"' || c == '\'':
		return p.quoted(c)
	case c == closing && len(p.brackets) > 0 && p.brackets[len(p.brackets)-1] == 0:
		p.take(ends, 1)
		p.brackets = p.brackets[:len(p.brackets)-1]
	default:
		return p.symbol(c)
	}
	return nil
}

func (p *parser) take(k kind, n int) {
	p.token = token{kind: k, text: p.text[p.at : p.at+n], begin: p.at, end: p.at + n}
	p.at += n
}

func (p *parser) symbol(c byte) error {
	for _, s := range symbols {
		if strings.HasPrefix(p.text[p.at:], s) {
			p.take(symbol, len(s))
			if n := len(p.brackets); n > 0 {
				switch s {
				case "(", "[", "{":
					p.brackets[n-1]++
				case ")", "]", "}":
					p.brackets[n-1] = max(0, p.brackets[n-1]-1)
				}
			}
			return nil
		}
	}
	if why, ok := refused[c]; ok {
		return &SyntaxError{p.at, why}
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return &SyntaxError{p.at, fmt.Sprintf("%q is not allowed here: put text in quotes", r)}
}

// number reads a number: whole, with the suffix L, hexadecimal, or with a fraction.
func (p *parser) number() error {
	begin, i := p.at, p.at
	for i < len(p.text) && (isDigit(p.text[i]) || isLetter(p.text[i]) || p.isFraction(i) || p.isExponentSign(begin, i)) {
		i++
	}
	p.take(constant, i-begin)
	text := p.token.text
	digits := strings.TrimRight(text, "lL")
	if len(text)-len(digits) > 1 {
		digits = text
	}
	if len(digits) > 1 && digits[0] == '0' && isDigit(digits[1]) {
		return &SyntaxError{begin, fmt.Sprintf("the number %s begins with 0: leave out the 0, or write it in quotes", shorten(text, 40))}
	}
	hex := strings.HasPrefix(digits, "0x") || strings.HasPrefix(digits, "0X")
	if hex || strings.Trim(digits, "0123456789") == "" {
		n, err := strconv.ParseInt(digits, 0, 64)
		if err != nil || strings.Contains(digits, "_") {
			return &SyntaxError{begin, fmt.Sprintf("%s is not a number of 64 bits", shorten(text, 40))}
		}
		p.token.value = &literal{n}
		return nil
	}
	f, ok := parseFloat(strings.TrimRight(text, "fFdD"))
	if !ok || len(digits) != len(text) {
		return &SyntaxError{begin, fmt.Sprintf("%s is not a number: put text in quotes", shorten(text, 40))}
	}
	p.token.value = &literal{f}
	return nil
}

// isFraction reports whether a point at offset i belongs to a number.
func (p *parser) isFraction(i int) bool {
	return p.text[i] == '.' && i+1 < len(p.text) && isDigit(p.text[i+1])
}

// isExponentSign reports whether the sign at offset i belongs to the number from offset begin on.
func (p *parser) isExponentSign(begin, i int) bool {
	c := p.text[i]
	return (c == '-' || c == '+') && i > begin && (p.text[i-1] == 'e' || p.text[i-1] == 'E') &&
		i+1 < len(p.text) && isDigit(p.text[i+1]) && !strings.HasPrefix(p.text[begin:], "0x")
}

// quoted reads a string. Expressions inside it become nodes. A backslash before a quote, a
// backslash, n, r, t or u with four digits is an escape. Before any other character it stays, as
// patterns need it.
func (p *parser) quoted(quote byte) error {
	begin := p.at
	var parts []any
	var b strings.Builder
	for i := begin + 1; ; {
		n := strings.IndexAny(p.text[i:], string(quote)+"\\<")
		if n < 0 {
			return &SyntaxError{begin, fmt.Sprintf("the text has no end: write %c at its end", quote)}
		}
		b.WriteString(p.text[i : i+n])
		i += n
		switch rest := p.text[i:]; {
		case rest[0] == quote:
			p.at = begin
			p.take(constant, i+1-begin)
			p.token.value = stringNode(append(parts, b.String()))
			return nil
		case rest[0] == '\\':
			n, text := unescape(rest)
			b.WriteString(text)
			i += n
		case strings.HasPrefix(rest, opening) && !isInput(rest):
			inner := parser{text: p.text, nesting: p.nesting, tokens: p.tokens}
			x, end, err := inner.delimited(i)
			if err != nil {
				return err
			}
			p.tokens = inner.tokens
			parts = append(parts, b.String(), x)
			b.Reset()
			i = end
		default:
			b.WriteByte('<')
			i++
		}
	}
}

// stringNode returns the node for the parts of a string literal.
func stringNode(parts []any) node {
	if len(parts) == 1 {
		return &literal{parts[0]}
	}
	return &interpolated{parts}
}

// unescape returns the length and the text of the escape at the begin of text.
func unescape(text string) (int, string) {
	if len(text) < 2 {
		return 1, text[:1]
	}
	switch c := text[1]; c {
	case '\\', '"', '\'':
		return 2, text[1:2]
	case 'n':
		return 2, "\n"
	case 'r':
		return 2, "\r"
	case 't':
		return 2, "\t"
	case 'u':
		if len(text) >= 6 {
			if n, err := strconv.ParseUint(text[2:6], 16, 16); err == nil {
				return 6, string(rune(n))
			}
		}
	}
	return 1, `\`
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
