package expression

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
)

const maxPattern = 1000 // bytes

// pattern compiles a regular expression and counts the work of one search in subject. shown is
// the pattern for errors.
func (ev *evaluation) pattern(text, shown, subject string) (*regexp.Regexp, error) {
	if len(shown) > maxPattern {
		return nil, fmt.Errorf("a pattern has more than %d characters", maxPattern)
	}
	if err := ev.step(20 + len(text)); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		return nil, fmt.Errorf("the pattern %q is not valid (%s): patterns are those of RE2, which has no look-arounds and no back references", shorten(shown, 100), strings.ReplaceAll(why, text, shown))
	}
	size, err := programSize(text)
	if err != nil {
		return nil, err
	}
	return re, ev.step(len(subject) * size / 1024)
}

// programSize returns the number of instructions of a valid pattern. A search takes at most so
// many operations for each character.
func programSize(text string) (int, error) {
	if !strings.Contains(text, "{") {
		return 2*len(text) + 2, nil
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}

// regexExtract returns the first match that is not empty, or "".
func regexExtract(ev *evaluation, args []any) (any, error) {
	a, err := ev.textArguments(args)
	if err != nil {
		return nil, err
	}
	re, err := ev.pattern(a[0], a[0], a[1])
	if err != nil {
		return nil, err
	}
	for _, m := range re.FindAllStringIndex(a[1], ev.limits.Steps+1) {
		if err := ev.step(1); err != nil {
			return nil, err
		}
		if m[1] > m[0] {
			return a[1][m[0]:m[1]], nil
		}
	}
	return "", nil
}

func regexMatch(ev *evaluation, args []any) (any, error) {
	a, err := ev.textArguments(args)
	if err != nil {
		return nil, err
	}
	re, err := ev.pattern(a[0], a[0], a[1])
	return err == nil && re.MatchString(a[1]), err
}

func regexReplace(ev *evaluation, args []any) (any, error) {
	a, err := ev.textArguments(args)
	if err != nil {
		return nil, err
	}
	return ev.replacePattern(a[0], a[1], a[2])
}

// split implements split(pattern) and split(pattern, limit). Empty texts at the end are left out,
// unless there is a limit.
func split(ev *evaluation, v any, args []any) (any, error) {
	s := v.(string)
	pattern, err := ev.scalarText(args[0], "the pattern")
	if err != nil {
		return nil, err
	}
	limit := int64(0)
	if len(args) > 1 {
		if limit, err = toInt(args[1]); err != nil {
			return nil, err
		}
	}
	if err := ev.step(len(s) / 64); err != nil {
		return nil, err
	}
	most := ev.limits.Steps + 1
	if limit > 0 {
		most = int(min(limit, int64(most)))
	}
	var parts []string
	if isPlain(pattern) {
		parts = strings.SplitN(s, pattern, most)
	} else {
		re, err := ev.pattern(pattern, pattern, s)
		if err != nil {
			return nil, err
		}
		parts = re.Split(s, most)
	}
	if len(parts) > 1 && limit == 0 {
		for len(parts) > 0 && parts[len(parts)-1] == "" {
			parts = parts[:len(parts)-1]
		}
	}
	if err := ev.spend(16 * len(parts)); err != nil {
		return nil, err
	}
	items, _ := normal(parts)
	return items, ev.step(len(parts))
}

// isPlain reports whether a pattern matches only itself.
func isPlain(pattern string) bool {
	return pattern != "" && !strings.ContainsAny(pattern, `\.+*?()|[]{}^$`)
}

// replacePattern replaces all matches of a pattern. $1 and ${name} in the replacement are groups,
// and a backslash makes the next character plain.
func (ev *evaluation) replacePattern(pattern, replacement, s string) (any, error) {
	re, err := ev.pattern(pattern, pattern, s)
	if err != nil {
		return nil, err
	}
	replacement, err = goReplacement(replacement, re.NumSubexp())
	if err != nil {
		return nil, err
	}
	cost := 1 + re.NumSubexp()
	var out []byte
	done := 0
	for _, m := range re.FindAllStringSubmatchIndex(s, ev.limits.Steps/cost+1) {
		before := len(out)
		out = append(out, s[done:m[0]]...)
		out = re.ExpandString(out, replacement, s, m)
		done = m[1]
		if err := ev.spend(len(out) - before); err != nil {
			return nil, err
		}
		if len(out) > ev.limits.ValueBytes {
			return nil, ev.spend(len(out))
		}
		if err := ev.step(cost); err != nil {
			return nil, err
		}
	}
	return ev.made(string(append(out, s[done:]...)))
}

// goReplacement converts a replacement of Java to one of Go.
func goReplacement(s string, groups int) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			if s[i] == '$' {
				b.WriteByte('$')
			}
			b.WriteByte(s[i])
		case c == '$' && i+1 < len(s) && unicode.IsDigit(rune(s[i+1])):
			n := int(s[i+1] - '0')
			if n > groups {
				return "", fmt.Errorf("the replacement uses group %d, and the pattern has %d", n, groups)
			}
			i++
			for i+1 < len(s) && isDigit(s[i+1]) && n*10+int(s[i+1]-'0') <= groups {
				i++
				n = n*10 + int(s[i]-'0')
			}
			fmt.Fprintf(&b, "${%d}", n)
		case c == '$' && !strings.HasPrefix(s[i:], "${"):
			return "", fmt.Errorf(`the replacement has a "$" without a group: write "\$"`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
