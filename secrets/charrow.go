package secrets

import "bytes"

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
