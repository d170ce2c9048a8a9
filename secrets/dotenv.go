package secrets

import (
	"errors"
	"fmt"
	"strings"
)

// dotenvVariable returns the value of a variable in a dotenv file, which has lines
// of the form NAME=value. If a name occurs several times, the last line counts, as
// in a shell. The parser skips comments, and "export" before a name. A value is
//
//   - plain: it ends at " #" or at the end of the line, without surrounding white
//     space;
//   - in single quotes: literal, possibly over several lines;
//   - in double quotes: the same, with the escapes \n, \r and \t; a backslash before
//     another character stands for that character.
//
// Unlike most dotenv readers, it does not expand $: a password may contain it.
// Errors show no part of the text.
func dotenvVariable(text, name string) (value string, err error) {
	found := false
	for line := 1; text != ""; line++ {
		text = strings.TrimLeft(text, " \t\r\n")
		if text == "" || text[0] == '#' {
			_, text, _ = strings.Cut(text, "\n")
			continue
		}
		key, rest, ok := strings.Cut(text, "=")
		key = strings.TrimSpace(key)
		if after, ok := strings.CutPrefix(key, "export"); ok && strings.TrimLeft(after, " \t") != after {
			key = strings.TrimLeft(after, " \t")
		}
		if !ok || key == "" || strings.ContainsAny(key, " \t\r\n'\"#") {
			return "", fmt.Errorf("the file is not a dotenv file: entry %d", line)
		}
		var v string
		if v, text, err = dotenvValue(strings.TrimLeft(rest, " \t")); err != nil {
			return "", fmt.Errorf("the file is not a dotenv file: entry %d: %w", line, err)
		}
		if key == name {
			value, found = v, true
		}
	}
	if !found {
		return "", fmt.Errorf("%w: it has no field %q", ErrNotFound, name)
	}
	return value, nil
}

// dotenvValue returns the value at the beginning of text, and the text after its
// line.
func dotenvValue(text string) (value, rest string, err error) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		line, rest, _ := strings.Cut(text, "\n")
		line, _, _ = strings.Cut(" "+line, " #") // with the space, a value that begins with # is a comment
		return strings.TrimSpace(line), rest, nil
	}
	quote, text := text[0], text[1:]
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			after, rest, _ := strings.Cut(text[i+1:], "\n")
			if after = strings.TrimSpace(after); after != "" && after[0] != '#' {
				return "", "", errors.New("the closing quote is not the end of the value")
			}
			return b.String(), rest, nil
		case c == '\\' && quote == '"' && i+1 < len(text):
			i++
			b.WriteByte(unescapeDotenv(text[i]))
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("a quote is not closed")
}

func unescapeDotenv(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return c
	}
}
