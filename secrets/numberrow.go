package secrets

import "strings"

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
	code     bool // 0x precedes the digits, as xxd -i writes it
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
	r.over, r.indented, r.colon, r.code = false, false, false, false
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
		switch r.n {
		case maxDigits:
			r.finish()
			return
		case 0:
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
	case b|0x20 == 'x' && r.indented && !r.colon && r.n == 1 && r.digits[0] == 0:
		r.code, r.n = true, 0
	case b == ',' && r.code && r.n > 0:
		d.endGroup(r)
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
	if v, ok := bitsOf(digits); ok && r.colon {
		d.add(bitDigits, v, at)
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

// bitsOf returns the value of eight bits, as xxd -b writes a byte.
func bitsOf(digits []byte) (v byte, ok bool) {
	for _, digit := range digits {
		if digit > 1 {
			return 0, false
		}
		v = v<<1 | digit
	}
	return v, len(digits) == 8
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
