package file

import (
	"errors"
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/secrets"
)

// dotenv finds a variable in a file of lines NAME=value. Its last line wins, as
// in a shell. "export" before it and comments are passed over. A value is
//
//   - plain: up to " #" or the end of the line, without white space around it;
//   - in single quotes: as it is, over several lines if need be;
//   - in double quotes: likewise, with the escapes \n, \r, \t, and \ before any
//     other character for that character.
//
// Unlike what most readers do, $ is a character like others: a password may have
// one. The errors show nothing of the text.
func dotenv(text, name string) (value string, err error) {
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
			return "", fmt.Errorf("the file is not in dotenv form: entry %d", line)
		}
		var v string
		if v, text, err = dotenvValue(strings.TrimLeft(rest, " \t")); err != nil {
			return "", fmt.Errorf("the file is not in dotenv form: entry %d: %w", line, err)
		}
		if key == name {
			value, found = v, true
		}
	}
	if !found {
		return "", fmt.Errorf("%w: it has no field %q", secrets.ErrNotFound, name)
	}
	return value, nil
}

// dotenvValue reads a value and returns what follows its line.
func dotenvValue(text string) (value, rest string, err error) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		line, rest, _ := strings.Cut(text, "\n")
		line, _, _ = strings.Cut(" "+line, " #") // the space makes a line that begins with # a comment
		return strings.TrimSpace(line), rest, nil
	}
	quote, text := text[0], text[1:]
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			after, rest, _ := strings.Cut(text[i+1:], "\n")
			if after = strings.TrimSpace(after); after != "" && after[0] != '#' {
				return "", "", errors.New("something follows the closing quote")
			}
			return b.String(), rest, nil
		case c == '\\' && quote == '"' && i+1 < len(text):
			i++
			b.WriteByte(unescape(text[i]))
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("a quote is not closed")
}

func unescape(c byte) byte {
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
