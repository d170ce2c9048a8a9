package secrets

// Tools wrap long encodings: base64 at 64 or 76 columns, quoted-printable with soft
// breaks, YAML with an indentation. So a line break within a form is ignored. The
// data of a text are its bytes without breaks. A break is
//
//	"=" (optional), at most two CR, LF, at most maxIndent spaces and tabs
//
// It neither begins after CR or LF, nor ends before white space, nor has an indentation
// before "=". A form of at least minBroken bytes is found in the data. If fewer than
// minHead bytes of it precede the first break, they stay visible: otherwise the ends of
// ordinary lines would be held back.
const (
	maxIndent = 32
	minBroken = 7
	minHead   = 4
	maxBreak  = 4 + maxIndent
)

// breakAt returns the break that has the newline text[i]. If the text ends with the
// break, later text may refute it.
func breakAt(text []byte, i int) (from, to int, ok bool) {
	from, to = i, i+1
	for n := 0; n < 2 && from > 0 && text[from-1] == '\r'; n++ {
		from--
	}
	if from > 0 && text[from-1] == '=' {
		from--
	}
	if from > 0 && (text[from-1] == '\n' || text[from-1] == '\r') {
		return from, to, false
	}
	for to < len(text) && to <= i+maxIndent && isBlank(text[to]) {
		to++
	}
	return from, to, to == len(text) || !refutesBreak(text[to], to-i-1)
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' }

// refutesBreak reports whether b, after a newline and an indentation, shows that they do
// not form a break. A line of quoted-printable may begin with "=".
func refutesBreak(b byte, indent int) bool { return endsBreak(b) && (b != '=' || indent > 0) }

// endsBreak reports whether b may be the last byte of a break, or of its beginning.
func endsBreak(b byte) bool { return isBlank(b) || b == '\r' || b == '\n' || b == '=' }

// mayBegin reports whether a break may begin with b.
func mayBegin(previous, b byte) bool {
	return (b == '=' || b == '\r' || b == '\n') &&
		previous != '\n' && previous != '\r' && (previous != '=' || b == '=')
}

// nextData returns the offset of the first byte of data from at on. The byte before at is
// data. If the text may end within a break, nextData returns its length.
func nextData(text []byte, at int) int {
	if at == len(text) || !mayBegin(text[at-1], text[at]) {
		return at
	}
	i := at
	if text[i] == '=' {
		i++
	}
	for n := 0; n < 2 && i < len(text) && text[i] == '\r'; n++ {
		i++
	}
	if i == len(text) {
		return i
	}
	if text[i] == '\n' {
		if _, to, ok := breakAt(text, i); ok {
			return to
		}
	}
	return at
}

// isData reports whether text[at] is data.
func isData(text []byte, at int) bool {
	if !endsBreak(text[at]) {
		return true
	}
	k := at
	for k > 0 && isBlank(text[k]) && at-k < maxIndent {
		k--
	}
	for n := 0; n < 2 && k > 0 && text[k-1] == '\r'; n++ {
		k--
	}
	if k > 0 && text[k-1] == '=' {
		k--
	}
	for ; k <= at; k++ {
		if k > 0 && nextData(text, k) > at {
			return false
		}
	}
	return true
}

// dataBefore appends the offsets of the data before offset p, last one first, until pos has
// no more capacity.
func dataBefore(text []byte, p int, pos []int) []int {
	for p > 0 && len(pos) < cap(pos) {
		k := p
		for k > 0 && p-k < maxIndent && isBlank(text[k-1]) {
			k--
		}
		if k > 0 && text[k-1] == '\n' {
			if from, to, ok := breakAt(text, k-1); ok && to == p {
				p = from
				continue
			}
		}
		p--
		pos = append(pos, p)
	}
	return pos
}

// brokenGram returns the first q bytes of data, little-endian, or all n if there are
// fewer. The text begins with data.
func brokenGram(text []byte, q int) (gram uint64, n int) {
	for at := 0; n < q && at < len(text); n++ {
		gram |= uint64(text[at]) << (8 * n)
		at = nextData(text, at+1)
	}
	return gram, n
}
