package definition

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// String returns error or warning.
func (s Severity) String() string {
	if s == Error {
		return "error"
	}
	return "warning"
}

// MarshalText returns error or warning, the form of a severity in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (s *Severity) UnmarshalText(text []byte) error {
	switch string(text) {
	case "error":
		*s = Error
	case "warning":
		*s = Warning
	default:
		return fmt.Errorf("severity %q: must be error or warning", text)
	}
	return nil
}

// Error returns the problem as one line.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		b.WriteString(strconv.Itoa(p.Line) + ":")
	}
	if p.Column > 0 {
		b.WriteString(strconv.Itoa(p.Column) + ":")
	}
	if b.Len() > 0 {
		b.WriteString(" ")
	}
	b.WriteString(p.Severity.String() + ": " + p.Text)
	if p.Hint != "" {
		b.WriteString(": " + p.Hint)
	}
	b.WriteString(" [" + p.Code + "]")
	return b.String()
}

// Errors reports whether at least one problem is an error.
func (p Problems) Errors() bool {
	for _, problem := range p {
		if problem.Severity == Error {
			return true
		}
	}
	return false
}

// Error returns the problems, one in a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Sort orders the problems by file, line and column.
func (p Problems) Sort() {
	sort.SliceStable(p, func(i, j int) bool {
		a, b := p[i].Position, p[j].Position
		if a.File != b.File {
			return a.File < b.File
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		if a.Column != b.Column {
			return a.Column < b.Column
		}
		return p[i].Text < p[j].Text
	})
}

// Render returns the problems as text for a person: each with the line of the source and
// a caret below the place. The files are those that were read; a problem in another file has no
// line.
func (p Problems) Render(files ...Source) string {
	lines := map[string][]string{}
	for _, file := range files {
		lines[file.Name] = strings.Split(string(file.Text), "\n")
	}
	var b strings.Builder
	for _, problem := range p {
		b.WriteString(problem.Error() + "\n")
		source := lines[problem.File]
		if problem.Line < 1 || problem.Line > len(source) || len(source[problem.Line-1]) > longestLine {
			continue
		}
		b.WriteString(excerpt(source[problem.Line-1], problem.Line, problem.Column))
	}
	return b.String()
}

// longestLine is the length of lines, in bytes, of which Render shows an excerpt.
const longestLine = 64 << 10

// longestExcerpt is the number of characters of a source line that Render shows.
const longestExcerpt = 160

// excerpt returns a line with its number and a caret below the column.
func excerpt(line string, number, column int) string {
	text := []rune(strings.TrimRight(line, "\r"))
	start := 0
	if column > longestExcerpt/2 {
		start = min(column-longestExcerpt/2, len(text))
	}
	text = text[start:min(len(text), start+longestExcerpt)]
	margin := fmt.Sprintf("%5d | ", number)
	shown := margin + printable(text) + "\n"
	if column < 1 {
		return shown
	}
	below := make([]rune, 0, column)
	for i := range column - 1 - start {
		if i < len(text) && text[i] == '\t' {
			below = append(below, '\t')
			continue
		}
		below = append(below, ' ')
	}
	return shown + strings.Repeat(" ", len(margin)-2) + "| " + string(below) + "^\n"
}

// printable replaces control characters: the file may hold sequences that change a terminal.
func printable(text []rune) string {
	for i, r := range text {
		if (r < ' ' && r != '\t') || (r >= 0x7f && r < 0xa0) || r == utf8.RuneError {
			text[i] = '?'
		}
	}
	return string(text)
}

func newProblem(at Position, code, text string) *Problem {
	return &Problem{Position: at, Severity: Error, Code: code, Text: text}
}

// quote returns text from a file for a message: bounded and without control characters.
func quote(text string) string {
	const longest = 60
	if utf8.RuneCountInString(text) > longest {
		text = string([]rune(text)[:longest]) + "..."
	}
	return strconv.Quote(text)
}
