// Package dotenv reads files with lines of the form NAME=value.
//
//	for e := range dotenv.Entries(text, dotenv.Data) {
//		if e.Err != nil {
//			return fmt.Errorf("line %d: %w", e.Line, e.Err)
//		}
//		vars[e.Name] = e.Value
//	}
//
// joho/godotenv does not fit: it expands $ in values, and its errors quote the text, which may hold
// secrets.
package dotenv

import (
	"errors"
	"iter"
	"strings"
)

// Dialect selects how values are read. Both dialects skip blank lines, lines that begin with "#", and
// "export" before a name. Neither expands $. A value in single quotes is literal, a value in double quotes may
// have the escapes \n, \r and \t, and both may span lines.
type Dialect int

const (
	// Data is for the output files of steps (section 5 of docs/protocol.md). A plain value is the rest of its
	// line without surrounding white space, and "#" is part of it. If text follows a closing quote, the
	// quotes are part of a plain value. In double quotes, a backslash before a character other than n, r, t,
	// ", \ and $ is literal. A line break in quotes is one \n. A name is an [IsName].
	Data Dialect = iota
	// Settings is for files that people write. A plain value ends at " #". Text after a closing quote is
	// an error, except for a comment. In double quotes, a backslash before another character stands for
	// that character.
	Settings
)

// Entry is one variable, or one malformed line.
type Entry struct {
	Line        int // the number of its first line, from 1
	Name, Value string
	Err         error // shows no part of the text
}

var (
	errForm     = errors.New("not of the form KEY=VALUE")
	errUnclosed = errors.New("the quote is not closed")
	errTrailing = errors.New("text follows the closing quote")
)

// Entries returns the entries of text in their order. After a malformed line it continues with the next
// line.
func Entries(text string, d Dialect) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for number := 1; text != ""; {
			line, rest, _ := strings.Cut(text, "\n")
			if trimmed := strings.TrimSpace(line); trimmed == "" || trimmed[0] == '#' {
				text, number = rest, number+1
				continue
			}
			e := Entry{Line: number}
			used := len(line)
			name, raw, found := strings.Cut(line, "=")
			e.Name = trimExport(strings.TrimSpace(name))
			if !found || !d.allowsName(e.Name) {
				e.Err = errForm
			} else {
				begin := len(line) - len(strings.TrimLeft(raw, " \t"))
				var n int
				if e.Value, n, e.Err = readValue(text[begin:], d); e.Err == nil {
					used = begin + n
				}
			}
			number += 1 + strings.Count(text[:used], "\n")
			_, text, _ = strings.Cut(text[used:], "\n")
			if !yield(e) {
				return
			}
		}
	}
}

func (d Dialect) allowsName(name string) bool {
	if d == Data {
		return IsName(name)
	}
	return name != "" && !strings.ContainsAny(name, " \t\r\n'\"#")
}

// IsName reports whether s can be the name of a step's output: letters, digits, "_", "." and "-", and at
// the beginning only a letter or "_".
func IsName(s string) bool {
	for i, r := range s {
		switch {
		case r == '_', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z':
		case i > 0 && (r >= '0' && r <= '9' || r == '.' || r == '-'):
		default:
			return false
		}
	}
	return s != ""
}

func trimExport(name string) string {
	after, ok := strings.CutPrefix(name, "export")
	if trimmed := strings.TrimLeft(after, " \t"); ok && trimmed != after {
		return trimmed
	}
	return name
}

// readValue returns the value at the beginning of text and the length of the text that it occupies.
func readValue(text string, d Dialect) (value string, used int, err error) {
	line, _, _ := strings.Cut(text, "\n")
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		value, used, err = unquote(text, d)
		if !errors.Is(err, errTrailing) || d == Settings {
			return value, used, err
		}
	}
	plain := line
	if d == Settings {
		plain, _, _ = strings.Cut(" "+plain, " #") // with the space, a value that begins with # is a comment
	}
	return strings.TrimSpace(plain), len(line), nil
}

// unquote returns the quoted value at the beginning of text and the length of its text with the quotes.
func unquote(text string, d Dialect) (value string, used int, err error) {
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		c := text[i]
		switch {
		case c == quote:
			tail, _, _ := strings.Cut(text[i+1:], "\n")
			if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
				return "", 0, errTrailing
			}
			if value = b.String(); d == Data {
				value = strings.ReplaceAll(value, "\r\n", "\n")
			}
			return value, i + 1, nil
		case c == '\\' && quote == '"' && i+1 < len(text):
			i++
			unescape(&b, text[i], d)
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, errUnclosed
}

// unescape writes the character that a backslash before c stands for.
func unescape(b *strings.Builder, c byte, d Dialect) {
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 'r':
		b.WriteByte('\r')
	case 't':
		b.WriteByte('\t')
	default:
		if d == Data && c != '"' && c != '\\' && c != '$' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
}
