package secrets

// The readings of cells.
const (
	hexForward  = iota // hexadecimal digits in the order of the bytes
	hexReversed        // hexadecimal words with the lowest byte last, as on most machines
	octal              // octal bytes, and words with the lowest byte last
	characters
	bitDigits // eight bits for each byte
	numReadings
)

// reading is the text that cells show in one of the ways to read them.
type reading struct {
	stream  stream
	decoded []byte // the bytes that the stream has not searched
	size    int64  // the number of bytes

	// The end of the last masked interval, and the offset of the cell before it.
	maskedTo, maskedCell int64

	// at[first:] has for each byte from offset base on the offset of its cell.
	at    []int64
	first int
	base  int64
}

func newReading(x *index) *reading {
	r := &reading{stream: newStream(x), maskedTo: -1}
	r.stream.inRows = true
	return r
}

// restart begins a new text.
func (r *reading) restart(x *index) {
	r.stream.restart(x)
	r.decoded, r.size = r.decoded[:0], 0
	r.at, r.first, r.base, r.maskedTo = r.at[:0], 0, r.stream.base, -1
}

// cell returns the offset of the cell of a byte.
func (r *reading) cell(at int64) int64 {
	return r.at[r.first+int(max(at-r.base, 0))]
}

// open returns the offset of the cell with which the open suffix begins, or end if the
// suffix is empty.
func (r *reading) open(end int64) int64 {
	if r.first+int(r.stream.open-r.base) >= len(r.at) {
		return end
	}
	return r.cell(r.stream.open)
}

// forget removes the offsets of the cells before the open suffix.
func (r *reading) forget() {
	r.first += int(r.stream.open - r.base)
	r.base = r.stream.open
	if r.first > len(r.at)/2 {
		r.at, r.first = r.at[:copy(r.at, r.at[r.first:])], 0
	}
}
