package yaml

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// substitute replaces the expressions that [Compile] documents by the values of variables. An error names the line.
func substitute(data []byte, variables map[string]string) ([]byte, error) {
	if err := checkText(data); err != nil {
		return nil, err
	}
	s := substitution{text: string(data), variables: variables}
	if err := s.run(); err != nil {
		return nil, err
	}
	return []byte(s.out.String()), nil
}

// substitution reads a text once, from the left.
type substitution struct {
	text      string
	pos       int
	variables map[string]string
	out       strings.Builder
	// grown counts the bytes that expressions have produced.
	grown int
	// work counts the bytes of the values that functions have read.
	work int
}

var (
	errName    = errors.New("it has no name: write $${ for the characters ${")
	errUnclose = errors.New("it has no closing brace, or is not supported: write $${ for the characters ${")
	errWork    = errors.New("the expressions of the file take too long: their values or patterns are long")
	errGrown   = fmt.Errorf("the expressions of the file produce more than %d bytes", maxText)
)

// maxNested is the number of expressions that may be inside each other.
const maxNested = 20

func (s *substitution) run() error {
	for s.pos < len(s.text) {
		next := strings.IndexAny(s.text[s.pos:], `$\`)
		if next < 0 {
			s.out.WriteString(s.text[s.pos:])
			break
		}
		s.out.WriteString(s.text[s.pos : s.pos+next])
		s.pos += next
		switch start := s.pos; {
		case s.take("$$"):
			s.out.WriteByte('$')
		case s.take(`\\`):
			s.out.WriteByte('\\')
		case s.take(`\/`):
			s.out.WriteByte('/')
		case s.take("${"):
			value, err := s.expression(1)
			if err != nil {
				line := 1 + strings.Count(s.text[:start], "\n")
				return fmt.Errorf("line %d: the expression %q: %w", line, firstBytes(s.text[start:]), err)
			}
			s.out.WriteString(value)
		default:
			s.out.WriteByte(s.text[s.pos])
			s.pos++
		}
	}
	return nil
}

// firstBytes returns the start of a text, for errors.
func firstBytes(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	for i := range text {
		if i >= 40 {
			return text[:i]
		}
	}
	return text
}

// take skips a prefix of the remaining text. It reports whether the text has it.
func (s *substitution) take(prefix string) bool {
	if !strings.HasPrefix(s.text[s.pos:], prefix) {
		return false
	}
	s.pos += len(prefix)
	return true
}

// expression reads an expression after its "${" and returns its value.
func (s *substitution) expression(depth int) (string, error) {
	if depth > maxNested {
		return "", fmt.Errorf("more than %d expressions are inside each other", maxNested)
	}
	if s.take("#") {
		name, err := s.name()
		if err != nil {
			return "", err
		}
		return s.end(strconv.Itoa(len(s.value(name))))
	}
	name, err := s.name()
	if err != nil {
		return "", err
	}
	value := s.value(name)
	if err := s.spend(len(value)); err != nil {
		return "", err
	}
	switch {
	case s.take("}"):
		return s.produced(value)
	case s.takeAny(":=", ":-", ":?", ":+", "=") != "":
		return s.orDefault(value, depth)
	case s.take(":"):
		return s.part(value, depth)
	}
	if op := s.takeAny("^^", "^", ",,", ","); op != "" {
		return s.end(changeCase(value, op))
	}
	if op := s.takeAny("//", "/#", "/%", "/"); op != "" {
		return s.replaced(value, op, depth)
	}
	if op := s.takeAny("##", "#", "%%", "%"); op != "" {
		return s.trimmed(value, op, depth)
	}
	return "", errUnclose
}

// takeAny skips the first of the prefixes that the remaining text has, and returns it.
func (s *substitution) takeAny(prefixes ...string) string {
	for _, p := range prefixes {
		if s.take(p) {
			return p
		}
	}
	return ""
}

func (s *substitution) name() (string, error) {
	rest := s.text[s.pos:]
	length := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' })
	if length < 0 {
		return "", errUnclose
	}
	if length == 0 {
		return "", errName
	}
	s.pos += length
	return rest[:length], nil
}

// value returns the value of a variable. One with a line break is quoted, so that it cannot
// change the structure of the file.
func (s *substitution) value(name string) string {
	v := s.variables[name]
	if strings.Contains(v, "\n") {
		v = strconv.Quote(v)
	}
	return v
}

// maxWork bounds the time of a file: a value may be long, and stand in many expressions.
const maxWork = 16 << 20

func (s *substitution) spend(work int) error {
	if s.work += work; s.work > maxWork {
		return errWork
	}
	return nil
}

func (s *substitution) end(value string) (string, error) {
	if !s.take("}") {
		return "", errUnclose
	}
	return s.produced(value)
}

// produced bounds the sum of all values, which may be repeated many times.
func (s *substitution) produced(value string) (string, error) {
	if s.grown += len(value); s.grown > maxText {
		return "", errGrown
	}
	return value, nil
}

// argument reads an argument up to one of the characters in stop: text, or one expression.
func (s *substitution) argument(stop string, escapes bool, depth int) (string, error) {
	if s.take("${") {
		return s.expression(depth + 1)
	}
	var b strings.Builder
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		switch {
		case c == '\n':
			return "", errUnclose
		case strings.IndexByte(stop, c) >= 0, strings.HasPrefix(s.text[s.pos:], "${"):
			return b.String(), nil
		case escapes && s.take("$$"):
			b.WriteByte('$')
			continue
		case escapes && s.take(`\\`):
			b.WriteByte('\\')
			continue
		case escapes && s.take(`\/`):
			b.WriteByte('/')
			continue
		}
		b.WriteByte(c)
		s.pos++
	}
	return "", errUnclose
}

// orDefault reads the default: any number of texts and expressions.
func (s *substitution) orDefault(value string, depth int) (string, error) {
	var b strings.Builder
	for !s.take("}") {
		if s.pos == len(s.text) {
			return "", errUnclose
		}
		piece, err := s.argument("}", false, depth)
		if err != nil {
			return "", err
		}
		b.WriteString(piece)
	}
	if value == "" {
		value = b.String()
	}
	return s.produced(value)
}

// part returns a part of the value. A position or a length that is not a number has no effect.
func (s *substitution) part(value string, depth int) (string, error) {
	position, err := s.argument(":}", false, depth)
	if err != nil {
		return "", err
	}
	length, limited := "", s.take(":")
	if limited {
		if length, err = s.argument("}", false, depth); err != nil {
			return "", err
		}
	}
	from, err := strconv.Atoi(position)
	if err != nil {
		return s.end(value)
	}
	to := len(value)
	if limited {
		count, err := strconv.Atoi(length)
		if err != nil {
			return s.end(value)
		}
		if count < 0 {
			return "", fmt.Errorf("the length %d is negative", count)
		}
		if from < 0 {
			from = max(0, len(value)+from)
		}
		to = min(len(value), from+min(count, len(value)))
	}
	if from < 0 {
		from = max(0, len(value)+from)
	}
	if from >= to {
		return s.end("")
	}
	return s.end(value[from:to])
}

func changeCase(value, op string) string {
	change, one := strings.ToUpper, unicode.ToUpper
	if op[0] == ',' {
		change, one = strings.ToLower, unicode.ToLower
	}
	if len(op) == 2 || value == "" {
		return change(value)
	}
	r, size := utf8.DecodeRuneInString(value)
	return string(one(r)) + value[size:]
}

func (s *substitution) replaced(value, op string, depth int) (string, error) {
	from, err := s.argument("/", true, depth)
	if err != nil {
		return "", err
	}
	if !s.take("/") {
		return "", errUnclose
	}
	to, err := s.argument("}", true, depth)
	if err != nil {
		return "", err
	}
	times := 1
	switch op {
	case "//":
		times = -1
		if strings.Count(value, from)*len(to) > maxText {
			return "", errGrown
		}
	case "/#":
		if !strings.HasPrefix(value, from) {
			times = 0
		}
	case "/%":
		if before, ok := strings.CutSuffix(value, from); ok {
			return s.end(before + to)
		}
		times = 0
	}
	return s.end(strings.Replace(value, from, to, times))
}

// trimmed removes the shortest or longest part of the value that matches a pattern, from its
// start or its end.
func (s *substitution) trimmed(value, op string, depth int) (string, error) {
	pattern, err := s.argument("}", false, depth)
	if err != nil {
		return "", err
	}
	if len(pattern) > maxPattern {
		return "", fmt.Errorf("its pattern has %d bytes: at most %d are possible", len(pattern), maxPattern)
	}
	if err := s.spend(len(value) * len(pattern) / 16); err != nil {
		return "", err
	}
	text, err := glob(pattern, false, len(op) == 1)
	if err != nil {
		return "", err
	}
	if op[0] == '#' {
		re, err := regexp.Compile(`(?s)\A` + text)
		if err != nil {
			return "", err
		}
		if found := re.FindStringIndex(value); found != nil {
			value = value[found[1]:]
		}
		return s.end(value)
	}
	// A match at the end begins as late or as early as possible.
	before := `.*`
	if len(op) == 2 {
		before = `.*?`
	}
	re, err := regexp.Compile(`(?s)\A(` + before + `)` + text + `\z`)
	if err != nil {
		return "", err
	}
	if found := re.FindStringSubmatch(value); found != nil {
		value = found[1]
	}
	return s.end(value)
}
