package yaml

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// glob converts a pattern to a regular expression, so that the time of a match is linear.
// In a path, "*" and "?" stop at "/", the component "**" stands for any number of components,
// and {a,b} for one of its alternatives. Otherwise "*" and "?" match any character, and only
// they, classes and "\" are special. If lazy is set, "*" matches as little as possible.
func glob(pattern string, path, lazy bool) (string, error) {
	if !path {
		return globComponent(pattern, `.`, lazy, false)
	}
	var b strings.Builder
	components := strings.Split(pattern, "/")
	for i, component := range components {
		last := i == len(components)-1
		switch {
		case component == "**" && last:
			b.WriteString(`.*`)
			continue
		case component == "**":
			b.WriteString(`(?:[^/]*/)*`)
			continue
		}
		text, err := globComponent(component, `[^/]`, lazy, true)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		if !last {
			b.WriteByte('/')
		}
	}
	return b.String(), nil
}

func globComponent(pattern, any string, lazy, path bool) (string, error) {
	star := any + "*"
	if lazy {
		star += "?"
	}
	var b strings.Builder
	depth := 0
	for i := 0; i < len(pattern); {
		r, size := utf8.DecodeRuneInString(pattern[i:])
		i += size
		switch {
		case r == '*':
			b.WriteString(star)
		case r == '?':
			b.WriteString(any)
		case r == '[':
			class, length, err := globClass(pattern[i:], path)
			if err != nil {
				return "", err
			}
			b.WriteString(class)
			i += length
		case r == '\\':
			if i == len(pattern) {
				return "", fmt.Errorf("the pattern %q ends with a backslash", pattern)
			}
			r, size = utf8.DecodeRuneInString(pattern[i:])
			i += size
			b.WriteString(regexp.QuoteMeta(string(r)))
		case r == '{' && path:
			depth++
			b.WriteString("(?:")
		case r == '}' && depth > 0:
			depth--
			b.WriteString(")")
		case r == ',' && depth > 0:
			b.WriteString("|")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	if depth > 0 {
		return "", fmt.Errorf("the pattern %q has a brace that is not closed", pattern)
	}
	return b.String(), nil
}

// globClass converts a class after its "[". It returns the length of the class with its "]". In a
// path no class matches "/".
func globClass(text string, path bool) (class string, length int, err error) {
	var b strings.Builder
	b.WriteByte('[')
	rest, negated := strings.CutPrefix(text, "^")
	if negated {
		b.WriteByte('^')
	}
	if negated && path {
		b.WriteByte('/')
	}
	length = len(text) - len(rest)
	for first := true; rest != ""; first = false {
		r, size := utf8.DecodeRuneInString(rest)
		rest, length = rest[size:], length+size
		switch {
		case r == ']' && !first:
			b.WriteByte(']')
			return b.String(), length, nil
		case r == '-' && !first && rest != "" && rest[0] != ']':
			b.WriteByte('-')
			continue
		case r == '\\' && rest != "":
			r, size = utf8.DecodeRuneInString(rest)
			rest, length = rest[size:], length+size
		}
		if strings.ContainsRune(`\]^-[&~`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return "", 0, fmt.Errorf("the class [%s is not closed", text)
}
