package secrets

import (
	"bytes"
	"strings"
)

// maxBlanks is the maximum number of spaces before a group of digits.
const maxBlanks = 16

// maxDigits is the maximum number of digits in a group: xxd -g0 does not separate the bytes
// of a row.
const maxDigits = 64

// An offset has at least minOffset digits.
const (
	minOffset = 6
	maxOffset = 16
)

// hexValue has the value of each hexadecimal digit, and 16 for other bytes.
var hexValue = func() (t [256]byte) {
	for c := range t {
		t[c] = 16
		if i := strings.IndexByte(hexLower, byte(c)|0x20); i >= 0 && c > ' ' {
			t[c] = byte(i)
		}
	}
	return t
}()

// octalBytes has the number of bytes for each number of octal digits in a cell.
var octalBytes = [...]int{3: 1, 6: 2, 11: 4, 22: 8}

// mayBeRow reports whether the line at the beginning of text may have a cell. It is cheap
// and sees at most eight bytes.
func mayBeRow(text []byte) bool {
	if text[0] == ' ' {
		return true
	}
	if len(text) >= 8 && text[4] > ' ' && hexValue[text[4]] == 16 && text[2] > ' ' && text[3] > ' ' {
		return false // usually: a timestamp, or a word
	}
	n := 0
	for n < len(text) && n < 8 && hexValue[text[n]] < 16 {
		n++
	}
	switch {
	case n == len(text) || n == 8:
		return true
	case n == 0 || n == 1 || n == 5:
		return false
	case n >= minOffset && text[n] == ':':
		return true
	default:
		return text[n] == ' ' || text[n] == '\n' || text[n] == '\r'
	}
}

// numberRow is the state of a line whose cells are groups of digits.
type numberRow struct {
	over     bool // the line has no more cells
	indented bool // the line begins with a space
	colon    bool // a colon follows the offset, as xxd writes it
	groups   int  // complete groups, the offset included
	width    int  // the digits of the first cell, or 0
	blanks   int  // spaces before the group

	// The group that is not complete.
	n      int
	start  int64
	digits [maxDigits]byte

	// The first group of a line, if it may be an offset or a cell. It is a cell if the
	// second group has the same length. Otherwise firstN is 0.
	firstN      int
	firstStart  int64
	firstDigits [maxOffset]byte
}

func (r *numberRow) begin() {
	r.over, r.indented, r.colon = false, false, false
	r.groups, r.width, r.blanks, r.n, r.firstN = 0, 0, 0, 0, 0
}

func (r *numberRow) finish() { r.over, r.n, r.firstN = true, 0, 0 }

// open returns the offset of the digits that may become a cell, or end without such digits.
func (r *numberRow) open(end int64) int64 {
	switch {
	case r.firstN > 0:
		return r.firstStart
	case r.n > 0:
		return r.start
	}
	return end
}

// readNumber reads a byte of a row of numbers.
func (d *dumps) readNumber(b byte, at int64) {
	r := &d.numbers
	if v := hexValue[b]; v < 16 {
		switch {
		case r.n == maxDigits:
			r.finish()
			return
		case r.n == 0:
			r.start = at
		}
		r.digits[r.n] = v
		r.n++
		return
	}
	switch {
	case b == ' ':
		if r.n > 0 {
			d.endGroup(r)
		}
		r.indented = r.indented || r.groups == 0
		if r.blanks++; r.blanks > maxBlanks {
			r.finish()
		}
	case b == ':' && r.groups == 0 && !r.indented && r.n >= minOffset && r.n <= maxOffset:
		r.colon, r.groups, r.n = true, 1, 0
	case b == '\n' || b == '\r':
		if r.n > 0 {
			d.endGroup(r)
		}
		r.finish()
	default:
		r.finish()
	}
}

// endGroup ends a group of digits.
func (d *dumps) endGroup(r *numberRow) {
	n, blanks := r.n, r.blanks
	r.n, r.blanks = 0, 0
	r.groups++
	if r.groups == 1 && !r.indented && n >= minOffset {
		if n > maxOffset {
			r.finish()
		} else if isWidth(n) {
			r.firstN, r.firstStart = n, r.start
			copy(r.firstDigits[:], r.digits[:n])
		}
		return
	}
	if r.firstN == n && !d.addCell(r, r.firstDigits[:n], r.firstStart) {
		r.finish()
		return
	}
	r.firstN = 0
	if !r.isCell(n, blanks) || !d.addCell(r, r.digits[:n], r.start) {
		r.finish()
	}
}

// isWidth reports whether the tools write cells of n digits.
func isWidth(n int) bool {
	return n == 2 || n == 4 || n == 8 || n == 16 || n < len(octalBytes) && octalBytes[n] > 0
}

// isCell reports whether a group of n digits after a number of spaces is a cell.
func (r *numberRow) isCell(n, blanks int) bool {
	switch {
	case !r.colon:
		return isWidth(n) && (r.width == 0 || n == r.width)
	case n%2 != 0:
		return false
	default:
		// Two spaces precede the column of characters, which may look like a cell.
		// xxd -e aligns a group that is not complete to the right.
		return r.width == 0 || blanks == 1 || blanks+n == 1+r.width
	}
}

// addCell adds a cell to its readings. It reports false if the digits are not octal, and a
// cell of this width is.
func (d *dumps) addCell(r *numberRow, digits []byte, at int64) bool {
	if r.width == 0 {
		r.width = len(digits)
	}
	if n := len(digits); !r.colon && n < len(octalBytes) && octalBytes[n] > 0 {
		return d.addOctal(digits, at)
	}
	for i := 0; i < len(digits); i += 2 {
		d.add(hexForward, digits[i]<<4|digits[i+1], at)
	}
	if old := d.readings[hexReversed]; r.width > 2 || old != nil && old.size > 0 {
		for i := len(digits); i > 0; i -= 2 {
			d.add(hexReversed, digits[i-2]<<4|digits[i-1], at)
		}
	}
	return true
}

// addOctal adds an octal cell.
func (d *dumps) addOctal(digits []byte, at int64) bool {
	size := octalBytes[len(digits)]
	var v uint64
	for i, digit := range digits {
		if digit > 7 || i == 0 && int(digit)>>(8*size-3*(len(digits)-1)) > 0 {
			return false
		}
		v = v<<3 | uint64(digit)
	}
	for i := range size {
		d.add(octal, byte(v>>(8*i)), at)
	}
	return true
}

// charRow is the state of a line whose cells are characters, as od -c writes it. A cell has
// four columns: a space, and three for a character, an escape or three octal digits.
type charRow struct {
	over     bool // the line has no more cells
	inCells  bool // the cells have begun
	hasBytes bool // the line has an offset or a character other than a space
	indent   int  // spaces before the first cell that are still expected
	offset   int  // digits of the offset
	column   int  // the next column
	spaces   int  // cells with a space before the current cell

	form     charForm
	value    byte
	start    int64 // of the characters in the cell
	complete bool  // the cell is complete if a space or the end of the line follows
}

// charForm is the form of a cell.
type charForm byte

const (
	plainChar charForm = iota
	octalChar
	escapedChar
)

// maxSpaces is the maximum number of consecutive cells with a space.
const maxSpaces = 64

// begin begins a line. The cells follow indent spaces if indent is not 0.
func (r *charRow) begin(indent int) {
	*r = charRow{indent: indent}
}

// open returns the offset of the characters that may become a cell, or end without such
// characters.
func (r *charRow) open(end int64) int64 {
	if !r.over && (r.complete || r.column > 1 && r.form != plainChar) {
		return r.start
	}
	return end
}

// readChar reads a byte of a row of characters.
func (d *dumps) readChar(r *charRow, b byte, at int64) {
	switch {
	case b == '\n' || b == '\r':
		if r.complete {
			d.addChar(r)
		}
		if r.hasBytes && r.form == plainChar {
			d.addSpaces(r, at)
		}
		r.over, r.complete = true, false
	case r.inCells:
		d.readColumn(r, b, at)
	case r.indent > 0:
		if b != ' ' {
			r.over = true
		}
		r.indent--
		r.inCells = r.indent == 0
	case b == ' ':
		r.over = r.offset > 0 && r.offset < minOffset
		r.inCells, r.hasBytes, r.column = true, r.offset > 0, 1
	case hexValue[b] < 16 && r.offset < maxOffset:
		r.offset++
	default:
		r.over = true
	}
}

// readColumn reads a byte of a cell.
func (d *dumps) readColumn(r *charRow, b byte, at int64) {
	ok := true
	switch column := r.column; {
	case column == 0:
		if ok = b == ' '; ok && r.complete {
			d.addChar(r)
		}
		r.complete, r.form = false, plainChar
	case b == ' ' && r.form == plainChar:
		if column == 3 {
			r.spaces++
			ok = r.spaces <= maxSpaces
		}
	case column == 1 || r.form == octalChar:
		if column == 1 {
			r.form, r.value, r.start = octalChar, 0, at
			ok = b <= '3'
		}
		ok = ok && b >= '0' && b <= '7'
		r.value = r.value<<3 | b&7
		r.complete = column == 3
	case column == 2:
		r.form, r.start = escapedChar, at
		ok = b == '\\'
	case r.form == escapedChar:
		i := bytes.IndexByte([]byte("0abfnrtv"), b)
		if ok = i >= 0; ok {
			r.value, r.complete = "\x00\a\b\f\n\r\t\v"[i], true
		}
	default:
		r.value, r.start, r.complete = b, at, true
		ok = b > ' ' && b < 0x7f
	}
	r.column = (r.column + 1) % 4
	if !ok {
		r.over, r.complete = true, false
	}
}

// addChar adds the cell that is complete.
func (d *dumps) addChar(r *charRow) {
	d.addSpaces(r, r.start)
	d.add(characters, r.value, r.start)
	r.hasBytes, r.form = true, plainChar
}

// addSpaces adds the cells with a space. They count as a part of the cell at an offset,
// because spaces are not held back.
func (d *dumps) addSpaces(r *charRow, at int64) {
	for ; r.spaces > 0; r.spaces-- {
		d.add(characters, ' ', at)
	}
}
