package steps

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// base64Prefix marks a value that is written as base64 (PROTOCOL 5).
const base64Prefix = "__B64__"

// parseDotenv reads the KEY=VALUE lines of an output file (PROTOCOL 5). Blank
// lines and lines that begin with "#" are skipped, "export " before a key too.
//
// A value in single quotes is taken as it is, one in double quotes with the
// escapes \n \r \t \" \\ \$; both may span lines. Any other value is the rest of
// its line without the white space around it, "#" included: outputs are data.
// Nothing is expanded.
//
// Lines that are malformed are left out; the error names them, never what is in
// them.
func parseDotenv(text string) (map[string]string, error) {
	vars := map[string]string{}
	var errs []error
	for number := 1; text != ""; {
		start := number
		line, rest, _ := strings.Cut(text, "\n")
		number++
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' {
			text = rest
			continue
		}
		key, raw, found := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if after, ok := strings.CutPrefix(key, "export "); ok {
			key = strings.TrimSpace(after)
		}
		if !found || !isKey(key) {
			errs = append(errs, fmt.Errorf("line %d: not of the form KEY=VALUE", start))
			text = rest
			continue
		}
		value := strings.TrimSpace(raw)
		if value != "" && (value[0] == '"' || value[0] == '\'') {
			// The value may go on in the lines below.
			all := text[len(line)-len(strings.TrimLeft(raw, " \t")):]
			quoted, used, err := unquote(all)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("line %d: %w", start, err))
				text = rest
				continue
			case used > 0:
				number = start + 1 + strings.Count(all[:used], "\n")
				value = quoted
				_, rest, _ = strings.Cut(all[used:], "\n")
			}
		}
		text = rest
		value, err := decode(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", start, err))
			continue
		}
		vars[key] = value
	}
	return vars, errors.Join(errs...)
}

// unquote reads the quoted value that s begins with and says how much of s it
// takes. That is 0 when more follows on its last line: then the quote is part of
// a plain value.
func unquote(s string) (value string, used int, err error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == quote:
			tail, _, _ := strings.Cut(s[i+1:], "\n")
			if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
				return "", 0, nil
			}
			return strings.ReplaceAll(b.String(), "\r\n", "\n"), i + 1, nil
		case c == '\\' && quote == '"' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 't':
				b.WriteByte('\t')
			case '"', '\\', '$':
				b.WriteByte(s[i])
			default:
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, errors.New("the quote is not closed")
}

// decode undoes base64Prefix.
func decode(value string) (string, error) {
	if encoded, ok := strings.CutPrefix(value, base64Prefix); ok {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
		if err != nil {
			return "", errors.New("the value is not valid base64") // err would quote it
		}
		value = string(b)
	}
	if strings.IndexByte(value, 0) >= 0 {
		return "", errors.New("the value holds a zero byte")
	}
	return value, nil
}

// isKey reports whether s can be a variable's name. Dots and dashes occur in
// outputs.
func isKey(s string) bool {
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

// isShellName reports whether s can be a variable's name in a shell.
func isShellName(s string) bool {
	return isKey(s) && !strings.ContainsAny(s, ".-")
}
