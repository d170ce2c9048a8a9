package secrets

import (
	"bytes"
	"slices"
)

// xxd, od and hexdump show bytes in rows. A row is a line of an offset, which may be
// missing, cells, and a rest. A cell is a group of hexadecimal or octal digits, or a
// character (numberrow.go, charrow.go). The rest is usually a column with the same bytes
// as characters.
//
// Digits can mean different bytes, because some tools swap the bytes of a word. So the
// cells of consecutive lines have several readings. A reading is a text, and a stream
// searches it (reading.go). A match masks the text from the cell of its first byte to the
// end of the line with its last byte. The open suffix of a reading is held back from its
// first cell on, and so are digits that may become a cell.
//
// A reading ends with a line that has no cell, or that is too long for its cells: a text
// must not make the masker hold back any number of bytes.

// dumps finds secrets in the rows of a text.
type dumps struct {
	readings [numReadings]*reading // nil before their first cell
	live     bool                  // a reading has bytes

	inLine  bool  // the text ends within a line
	idle    bool  // the rest of the line has no cells
	fed     bool  // the line has a cell
	limit   int64 // a line with its end beyond this offset ends all readings
	numbers numberRow
	chars   [2]charRow

	masked  []interval // not decided when scan or flush was last called
	masking bool       // the rest of the line is masked

	// The searched text, the offset of its first byte, and the index. They are valid
	// during a call of scan or flush.
	text  []byte
	base  int64
	index *index
}

const (
	// A line may have rowLength bytes, and cellLength more for each byte in its cells. The
	// widest format of the tools has four for a cell and one for the character.
	rowLength  = 64
	cellLength = 8
	// searchSize is the number of bytes of a reading that are searched at the end of a line.
	searchSize = 1 << 10
)

// scan reads text from offset first on. It masks the matches, and moves the open suffix of
// s to the first byte that is held back.
//
// lines has the offsets in text at which lines that may be rows begin, if they are known.
func (d *dumps) scan(s *stream, text []byte, first int, lines *lineStarts) {
	if d.inLine && d.idle && !d.live && !d.masking && len(d.masked) == 0 && lines.known && lines.none(first) {
		return
	}
	d.text, d.base, d.index = text, s.base, s.index
	if d.masking {
		d.maskLine(s.base+int64(first), s.base+int64(first))
	}
	if d.live {
		d.setIndex()
	}
	d.readLines(first, lines)
	s.open = max(min(s.open, d.open()), s.floor)
	d.cover(s)
	d.text = nil
}

// flush decides about all bytes of the readings. held is the held text of s.
func (d *dumps) flush(s *stream, held []byte) {
	if !d.live {
		return
	}
	d.text, d.base = held, s.base
	for _, r := range d.readings {
		if r != nil {
			d.maskLines(r, r.stream.undecided())
		}
	}
	d.cover(s)
	d.text = nil
}

// cover masks the intervals in s that are not decided.
func (d *dumps) cover(s *stream) {
	if len(d.masked) > 0 {
		d.masked = slices.DeleteFunc(d.masked, func(iv interval) bool { return iv.to <= s.decided })
		d.masked = mergeIntervals(d.masked)
		s.cover(d.masked)
	}
}

// open searches the readings, and returns the offset of the first byte that is held back.
func (d *dumps) open() int64 {
	open := d.base + int64(len(d.text))
	if d.inLine && !d.idle && len(d.index.matchers) > 0 {
		open = min(d.numbers.open(open), d.chars[0].open(open), d.chars[1].open(open))
	}
	if d.live {
		for _, r := range d.readings {
			if r != nil {
				d.search(r)
				open = min(open, r.open(open))
			}
		}
	}
	return open
}

// setIndex makes the readings search for the values that were added to the set.
func (d *dumps) setIndex() {
	for _, r := range d.readings {
		if r != nil && r.stream.index != d.index {
			r.stream.setIndex(d.index)
		}
	}
}

// readLines reads the text from offset i on.
func (d *dumps) readLines(i int, lines *lineStarts) {
	for i < len(d.text) {
		if !d.inLine {
			d.beginLine(i)
		}
		if d.idle {
			if i = d.endOfLine(i, lines); i < 0 {
				break
			}
		} else if i = d.readRow(i); i == len(d.text) {
			break
		}
		if d.text[i] == '\n' {
			d.inLine = false
			if d.live {
				d.endLine(d.base + int64(i))
			}
		}
		i++
	}
	if d.inLine && d.idle && d.live && d.base+int64(len(d.text)) > d.limit {
		d.end()
	}
}

// endOfLine returns the offset of the end of the line, or of a later line before one that may be
// a row. It returns -1 if there is none.
func (d *dumps) endOfLine(i int, lines *lineStarts) int {
	if lines.known && !d.live {
		return lines.next(i) - 1
	}
	if n := bytes.IndexByte(d.text[i:], '\n'); n >= 0 {
		return i + n
	}
	return -1
}

// beginLine begins a line at offset i of the text.
func (d *dumps) beginLine(i int) {
	d.inLine, d.fed = true, false
	d.limit = d.base + int64(i) + rowLength
	d.idle = !mayBeRow(d.text[i:])
	if !d.idle {
		d.numbers.begin()
		d.chars[0].begin(0)
		// od aligns the second format of a dump with the first one.
		d.chars[1].begin(7)
	}
}

// endLine ends the line at an offset.
func (d *dumps) endLine(at int64) {
	if !d.fed || at > d.limit {
		d.end()
		return
	}
	for _, r := range d.readings {
		if r != nil && len(r.decoded) >= searchSize {
			d.search(r)
		}
	}
}

// end ends all readings.
func (d *dumps) end() {
	d.live = false
	for _, r := range d.readings {
		if r == nil || r.size == 0 {
			continue
		}
		if r.size >= int64(d.index.shortest) {
			d.search(r)
			d.maskLines(r, r.stream.undecided())
		}
		r.restart(d.index)
	}
}

// readRow reads the row from offset i of the text on. It returns the offset of the newline, or of
// the byte that shows that the line has no more cells, or the length of the text.
func (d *dumps) readRow(i int) int {
	text, base := d.text, d.base
	for ; i < len(text); i++ {
		b, at := text[i], base+int64(i)
		if !d.numbers.over {
			d.readNumber(b, at)
		}
		if !d.chars[0].over {
			d.readChar(&d.chars[0], b, at)
		}
		if !d.chars[1].over {
			d.readChar(&d.chars[1], b, at)
		}
		d.idle = d.numbers.over && d.chars[0].over && d.chars[1].over
		if d.idle || b == '\n' {
			break
		}
	}
	return i
}

// add adds a byte of the cell at an offset to a reading.
func (d *dumps) add(kind int, b byte, at int64) {
	r := d.readings[kind]
	if r == nil {
		r = newReading(d.index)
		d.readings[kind] = r
	}
	r.decoded = append(r.decoded, b)
	r.at = append(r.at, at)
	r.size++
	d.live, d.fed = true, true
	d.limit += cellLength
}

// search searches the new bytes of a reading.
func (d *dumps) search(r *reading) {
	if len(r.decoded) == 0 {
		return
	}
	r.stream.write(r.decoded)
	r.decoded = r.decoded[:0]
	d.maskLines(r, r.stream.found)
	if n := len(r.stream.found); n > 0 {
		last := r.stream.found[n-1].to
		r.maskedTo, r.maskedCell = last, r.cell(last-1)
		r.stream.found = r.stream.found[:0]
	}
	r.forget()
}

// maskLines masks the lines of intervals of a reading.
func (d *dumps) maskLines(r *reading, found []interval) {
	for _, iv := range found {
		from := r.cell(iv.from)
		if iv.from == r.maskedTo { // it continues an interval that is decided
			from = r.maskedCell
		}
		d.maskLine(from, r.cell(iv.to-1))
	}
}

// maskLine masks the text from offset from to the end of the line that has the byte at
// offset last.
func (d *dumps) maskLine(from, last int64) {
	rest := d.text[min(max(last-d.base, 0), int64(len(d.text))):]
	n := bytes.IndexAny(rest, "\r\n")
	d.masking = n < 0
	if n < 0 {
		n = len(rest)
	}
	to := d.base + int64(len(d.text)-len(rest)+n)
	if from < to {
		d.masked = append(d.masked, interval{from, to})
	}
}
