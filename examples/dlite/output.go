package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"
	"golang.org/x/term"
)

// table is the output for people. Names are the output for -o name.
type table struct {
	header []string
	rows   [][]string
	names  []string
	empty  string // the message of an empty table
}

func (t *table) add(name string, row ...string) {
	t.names, t.rows = append(t.names, name), append(t.rows, row)
}

// print writes a value in the form that the user wants.
func (p *program) print(v any, t table) error {
	var text strings.Builder
	switch p.cli.Output {
	case "json":
		e := json.NewEncoder(&text)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("encoding the output: %w", err)
		}
	case "yaml":
		members, err := json.Marshal(v) // so that both forms have the same members
		if err == nil {
			members, err = yaml.JSONToYAML(members)
		}
		if err != nil {
			return fmt.Errorf("encoding the output: %w", err)
		}
		text.Write(members)
	case "name":
		for _, name := range t.names {
			text.WriteString(clean(name) + "\n")
		}
	default:
		text.WriteString(t.text(p.colours()))
	}
	return p.write(text.String())
}

// write writes to the standard output.
func (p *program) write(text string) error {
	if _, err := io.WriteString(p.out, text); err != nil {
		return usage("writing the output: %v", err)
	}
	return nil
}

// text returns the table for people.
func (t *table) text(colours bool) string {
	if len(t.rows) == 0 && t.empty != "" {
		return t.empty + "\n"
	} else if len(t.rows) == 0 {
		return ""
	}
	var text, out strings.Builder
	tab := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if t.header != nil {
		_, _ = fmt.Fprintln(tab, strings.Join(t.header, "\t"))
	}
	for _, row := range t.rows {
		for i := range row {
			row[i] = clean(row[i])
		}
		_, _ = fmt.Fprintln(tab, strings.Join(row, "\t"))
	}
	_ = tab.Flush()
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, " \n")
		if colours {
			line = colourStatus(line)
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// clean makes a text of others safe for a terminal: control characters could move the cursor or change its settings.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return '\uFFFD'
		}
		return r
	}, text)
}

// cleanLine makes a line of a log safe. Colours stay, if the terminal may have them.
func cleanLine(text string, colours bool) string {
	text = strings.TrimRight(text, "\r\n")
	var out strings.Builder
	for len(text) > 0 {
		if strings.HasPrefix(text, "\x1b[") {
			if end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' }); end >= 0 {
				if colours && text[2+end] == 'm' && strings.Trim(text[2:2+end], "0123456789;:") == "" {
					out.WriteString(text[:3+end])
				}
				text = text[3+end:]
				continue
			}
		}
		n := strings.IndexByte(text[1:], '\x1b') + 1
		if n == 0 {
			n = len(text)
		}
		out.WriteString(clean(strings.TrimPrefix(text[:n], "\x1b")))
		text = text[n:]
	}
	return out.String()
}

// colours reports whether the output may have colours.
func (p *program) colours() bool { return os.Getenv("NO_COLOR") == "" && p.isTerminal() }

// isTerminal reports whether a person reads the output.
func (p *program) isTerminal() bool {
	f, ok := p.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

var statusColours = map[string]string{
	"SUCCESS": "32", "SUCCEEDED": "32", "FAILURE": "31", "FAILED": "31", "TIMEOUT": "31", "EXPIRED": "31", "ABORTED": "33", "RUNNING": "36",
	"QUEUED": "34", "SKIPPED": "2", "LOST": "31", "DRAINING": "33", "ALIVE": "32", "IGNORE_FAILED": "33",
}

// colourStatus colours the first status of a line.
func colourStatus(line string) string {
	for _, word := range strings.Fields(line) {
		if code := statusColours[word]; code != "" {
			return strings.Replace(line, word, "\x1b["+code+"m"+word+"\x1b[0m", 1)
		}
	}
	return line
}

// note tells a person what happened and what to do next. It is not part of the output.
func (p *program) note(format string, args ...any) {
	_, _ = fmt.Fprintf(p.err, format+"\n", args...)
}

// took is the time between two times, or until now.
func took(from, to time.Time) string {
	switch {
	case from.IsZero():
		return ""
	case to.IsZero():
		return time.Since(from).Round(time.Second).String()
	}
	d := to.Sub(from)
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// ago is how long a time is past.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

func millis(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// size returns the columns and lines of the terminal.
func (p *program) size() (columns, lines int) {
	if f, ok := p.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}
