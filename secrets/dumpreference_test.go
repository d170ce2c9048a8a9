package secrets_test

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// dumpRun is a text that cells of consecutive lines show.
type dumpRun struct {
	kind string // how the cells are read
	text string
	at   []int // for each byte, the offset of its cell
	open bool  // the text may go on
}

// dumpCell has the bytes of a cell, by the way to read it.
type dumpCell struct {
	at    int
	bytes map[string]string
}

// rowParse is the result of parsing a line.
type rowParse struct {
	cells  []dumpCell
	hold   int  // offset of the characters that may become a cell, or -1
	goesOn bool // more text may add cells
}

// dumpsOf returns the runs of a text, and the offset of the first byte that may become a
// cell, or -1.
func dumpsOf(text string) (runs []dumpRun, hold int) {
	current := map[string]*dumpRun{}
	end := func() {
		for _, kind := range []string{"forward", "reversed", "octal", "chars", "bits"} {
			if r := current[kind]; r != nil {
				runs = append(runs, *r)
			}
		}
		clear(current)
	}
	hold = -1
	at := 0
	for line := range strings.Lines(text) {
		body := strings.TrimRight(line, "\n")
		ended := body != line
		if i := strings.IndexByte(body, '\r'); i >= 0 {
			body, ended = body[:i], true
		}
		complete := strings.HasSuffix(line, "\n")
		size, fed, goesOn := 64, false, false
		for _, parse := range []rowParse{
			parseNumbers(body, ended, current["reversed"] != nil), parseChars(body, ended, 0), parseChars(body, ended, 7),
		} {
			for _, c := range parse.cells {
				for kind, bytes := range c.bytes {
					if current[kind] == nil {
						current[kind] = &dumpRun{kind: kind, open: true}
					}
					current[kind].text += bytes
					for range len(bytes) {
						current[kind].at = append(current[kind].at, at+c.at)
					}
					size += 8 * len(bytes)
					fed = true
				}
			}
			goesOn = goesOn || parse.goesOn
			if parse.hold >= 0 && (hold < 0 || at+parse.hold < hold) {
				hold = at + parse.hold
			}
		}
		if complete && !fed || !goesOn && len(strings.TrimSuffix(line, "\n")) > size {
			for _, r := range current {
				r.open = false
			}
			end()
		}
		at += len(line)
	}
	end()
	return runs, hold
}

var (
	xxdOffset   = regexp.MustCompile(`^[0-9a-fA-F]{6,16}:`)
	digitGroup  = regexp.MustCompile(`^( *)([0-9a-fA-F]+)`)
	codePrefix  = regexp.MustCompile(`^ *0[xX]`) // of xxd -i
	bitsCell    = regexp.MustCompile(`^[01]{8}$`)
	octalDigits = regexp.MustCompile(`^([0-3][0-7]{2}|[01][0-7]{5}|[0-3][0-7]{10}|[01][0-7]{21})$`)
)

// parseNumbers parses a row of numbers. If ended is false, the text ends with the row.
func parseNumbers(body string, ended, wasReversed bool) (p rowParse) {
	p.hold = -1
	colon := xxdOffset.FindString(body)
	at := len(colon)
	indented := strings.HasPrefix(body, " ")
	first, width := -1, 0 // of the first cell
	firstDigits := ""
	code := false
	for n := 0; ; n++ {
		blanksBefore := 0
		for indented && colon == "" {
			prefix := codePrefix.FindString(body[at:])
			if prefix == "" {
				break
			}
			blanksBefore += len(prefix) - 2
			if blanksBefore > 16 {
				return p
			}
			code = true
			at += len(prefix)
			if at == len(body) {
				p.goesOn = !ended
				return p
			}
		}
		m := digitGroup.FindStringSubmatch(body[at:])
		if m == nil {
			rest := body[at:]
			if !ended && strings.Trim(rest, " ") == "" && len(rest) <= 16 {
				p.goesOn = true
				if firstDigits != "" {
					p.hold = first
				}
			}
			return p
		}
		blanks, digits := len(m[1])+blanksBefore, m[2]
		start := at + len(m[1])
		at += len(m[0])
		if blanks > 16 || len(digits) > 64 {
			return p
		}
		if at == len(body) && !ended {
			p.goesOn, p.hold = true, start
			if firstDigits != "" {
				p.hold = first
			}
			return p
		}
		if at < len(body) && body[at] == ',' && code {
			at++
		} else if at < len(body) && body[at] != ' ' {
			return p
		}
		if n == 0 && colon == "" && !indented && len(digits) >= 6 {
			if len(digits) > 16 {
				return p
			}
			if slices.Contains([]int{6, 8, 11, 16}, len(digits)) {
				first, firstDigits = start, digits
			}
			continue
		}
		cells := []string{digits}
		starts := []int{start}
		if len(firstDigits) == len(digits) {
			cells, starts = []string{firstDigits, digits}, []int{first, start}
		}
		firstDigits = ""
		for i, c := range cells {
			if colon == "" && width > 0 && len(c) != width || colon != "" && width > 0 && blanks != 1 && blanks+len(c) != width+1 {
				return p
			}
			bytes := numberCell(c, colon != "")
			if bytes == nil {
				return p
			}
			if width == 0 {
				width = len(c)
			}
			if _, ok := bytes["forward"]; ok && width == 2 && !wasReversed {
				delete(bytes, "reversed")
			}
			p.cells = append(p.cells, dumpCell{starts[i], bytes})
		}
	}
}

// numberCell returns the bytes of digits, or nil if they are no cell.
func numberCell(digits string, colon bool) map[string]string {
	size, isOctal := map[int]int{3: 1, 6: 2, 11: 4, 22: 8}[len(digits)]
	if isOctal && !colon {
		if !octalDigits.MatchString(digits) {
			return nil
		}
		v, _ := strconv.ParseUint(digits, 8, 64)
		var b []byte
		for i := range size {
			b = append(b, byte(v>>(8*i)))
		}
		return map[string]string{"octal": string(b)}
	}
	if !colon && !slices.Contains([]int{2, 4, 8, 16}, len(digits)) {
		return nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return nil
	}
	forward := string(b)
	slices.Reverse(b)
	bytes := map[string]string{"forward": forward, "reversed": string(b)}
	if colon && bitsCell.MatchString(digits) {
		v, _ := strconv.ParseUint(digits, 2, 8)
		bytes["bits"] = string([]byte{byte(v)})
	}
	return bytes
}

var (
	charsOffset = regexp.MustCompile(`^[0-9a-fA-F]{6,16} `)
	charCell    = regexp.MustCompile(`^ (  [!-~]|   | \\[0abfnrtv]|[0-3][0-7]{2})`)
	charPart    = regexp.MustCompile(`^ (| ?| \\|[0-3][0-7]?|  )$`)
	charEscapes = map[byte]string{'0': "\x00", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}
)

// parseChars parses a row of characters. The cells follow indent spaces if indent is not 0.
func parseChars(body string, ended bool, indent int) (p rowParse) {
	p.hold = -1
	at, hasBytes := indent, false
	if indent == 0 {
		if m := charsOffset.FindString(body); m != "" {
			at, hasBytes = len(m)-1, true
		} else if !strings.HasPrefix(body, " ") {
			p.goesOn = !ended && len(body) <= 16 && strings.Trim(body, "0123456789abcdefABCDEF") == ""
			return p
		}
	} else if strings.TrimLeft(body[:min(len(body), indent)], " ") != "" {
		return p
	} else if len(body) < indent {
		p.goesOn = !ended
		return p
	}
	spaces := 0
	add := func(value string, start int) {
		for ; spaces > 0; spaces-- {
			p.cells = append(p.cells, dumpCell{start, map[string]string{"chars": " "}})
		}
		if value != "" {
			p.cells = append(p.cells, dumpCell{start, map[string]string{"chars": value}})
			hasBytes = true
		}
	}
	for {
		rest := body[at:]
		m := charCell.FindStringSubmatch(rest)
		if m == nil {
			isPart := rest == "" || charPart.MatchString(rest)
			blank := strings.Trim(rest, " ") == ""
			if !ended && isPart {
				p.goesOn = true
				if !blank {
					p.hold = at + len(rest) - len(strings.TrimLeft(rest, " "))
				}
			}
			if ended && isPart && blank && hasBytes {
				add("", len(body))
			}
			return p
		}
		content := strings.TrimLeft(m[1], " ")
		if content == "" {
			if spaces++; spaces > 64 {
				return p
			}
			at += 4
			continue
		}
		start := at + 4 - len(content)
		at += 4
		if at == len(body) && !ended {
			p.goesOn, p.hold = true, start
			return p
		}
		if at < len(body) && body[at] != ' ' {
			return p
		}
		switch {
		case len(content) == 3:
			v, _ := strconv.ParseUint(content, 8, 8)
			add(string([]byte{byte(v)}), start)
		case len(content) == 2:
			add(charEscapes[content[1]], start)
		default:
			add(content, start)
		}
	}
}

// dumpID identifies a run of a text.
type dumpID struct {
	kind string
	at   int // offset of its first cell
}

func (r *dumpRun) id() dumpID { return dumpID{r.kind, r.at[0]} }

// markLines marks the lines that show the marked bytes of a run.
func (r *dumpRun) markLines(marked []bool, text string, in []bool) {
	for i := 0; i < len(in); i++ {
		if !in[i] {
			continue
		}
		from := i
		for i < len(in) && in[i] {
			i++
		}
		end := len(text)
		if n := strings.IndexAny(text[r.at[i-1]:], "\r\n"); n >= 0 {
			end = r.at[i-1] + n
		}
		for j := r.at[from]; j < end; j++ {
			marked[j] = true
		}
	}
}

// dumpOf returns the dump of a text in a format with a number of columns.
func dumpOf(text string, format, columns int) string {
	var b strings.Builder
	for at := 0; at < len(text); at += columns {
		row := text[at:min(len(text), at+columns)]
		switch format % 12 {
		case 0:
			fmt.Fprintf(&b, "%08x: %s  %s", at, cellsOf(row, "%02x", 2, ""), row)
		case 1:
			fmt.Fprintf(&b, "%08x: %s  %s", at, cellsOf(row, "%02X", 1, ""), row)
		case 2:
			fmt.Fprintf(&b, "%07o %s", at, cellsOf(row, "%02x", 2, "swapped"))
		case 3:
			fmt.Fprintf(&b, "%07o %s", at, cellsOf(row, "%06o", 2, "octal"))
		case 4:
			fmt.Fprintf(&b, " %s", cellsOf(row, "%02x", 1, ""))
		case 5:
			fmt.Fprintf(&b, "%07o%s", at, charsOf(row))
		case 6:
			fmt.Fprintf(&b, "%08x  %s  |%s|", at, cellsOf(row, "%02x", 1, ""), row)
		case 7:
			fmt.Fprintf(&b, "%s%s", strings.Repeat(" ", 7*(columns%2)), charsOf(row))
		case 8:
			fmt.Fprintf(&b, "%s", cellsOf(row, "%02x", 4, "swapped"))
		case 9:
			fmt.Fprintf(&b, "%08x: %s  %s", at, cellsOf(row, "%08b", 1, ""), row)
		case 10:
			fmt.Fprintf(&b, "  %s,", strings.ReplaceAll(cellsOf(row, "0x%02x", 1, ""), " ", ", "))
		default:
			fmt.Fprintf(&b, "%06x %s", at, cellsOf(row, "%03o", 1, ""))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// cellsOf returns cells with a number of bytes each.
func cellsOf(row, format string, size int, order string) string {
	var cells []string
	for word := range slices.Chunk([]byte(row), size) {
		if order != "" {
			word = append(slices.Clone(word), make([]byte, size-len(word))...)
			slices.Reverse(word)
		}
		if order == "octal" {
			cells = append(cells, fmt.Sprintf(format, int(word[0])<<8|int(word[1])))
			continue
		}
		var cell strings.Builder
		for _, c := range word {
			fmt.Fprintf(&cell, format, c)
		}
		cells = append(cells, cell.String())
	}
	return strings.Join(cells, " ")
}

// charsOf returns the cells of od -c.
func charsOf(row string) string {
	var b strings.Builder
	for _, c := range []byte(row) {
		switch {
		case c == '\n':
			b.WriteString(`  \n`)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, " %03o", c)
		default:
			fmt.Fprintf(&b, "   %c", c)
		}
	}
	return b.String()
}
