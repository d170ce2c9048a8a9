package secrets

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// classes are the kinds of finders. A finder samples the text: at every stride-th
// position it asks whether the gram (q bytes) that stands there is one of those
// that its needles hold at their first stride offsets. No needle of at least
// stride+q-1 bytes slips through, and shorter ones are left to the next class, so
// that one short secret does not slow down the search for the others. Where all
// needles of a finder are longer, its stride is up to twice that of its class.
var classes = [...]struct{ q, stride int }{{8, 8}, {4, 4}, {2, 2}, {1, 1}}

// classOf is the first class whose needles may be that short.
func classOf(needle []byte) int {
	for i, c := range classes {
		if len(needle) >= c.stride+c.q-1 {
			return i
		}
	}
	panic("secrets: an empty needle")
}

// finder finds needles of one class. It is immutable.
type finder struct {
	q, stride int
	mask      uint64 // of the q lowest bytes

	needles texts    // sorted, distinct
	keys    []uint64 // their first eight bytes, so that they sort alike
	shorter []int32  // for each the longest other one that it begins with, or -1

	grams filter // every gram within the first stride+q-1 bytes of a needle
	heads table  // the needles by their first gram

	// For the end of the text, of which needles may be only the beginning.
	ends   [256]bool // bytes of needles before stride+q-2
	first  [256]bool // first bytes of needles
	pairs  []uint64  // first two bytes of needles, a bit for each pair; if q > 2
	begins filter    // first three and more bytes of needles, but less than q
	// lengths has, for the last three bytes of such a beginning, hashed, a bit for
	// each length that it may have.
	lengths []uint8
	shift   uint8
}

// newFinder takes the needles of one class in sources, of which there are n.
func newFinder(class, n int, sources []*texts) *finder {
	f := &finder{q: classes[class].q, stride: 2 * classes[class].stride}
	f.mask = 1<<(8*f.q) - 1 // 1<<64 is 0
	order := make([]keyed, 0, 2*n)
	size := 0
	for s, t := range sources {
		for i := range t.len() {
			needle := t.at(i)
			if classOf(needle) == class {
				order = append(order, keyed{bits.ReverseBytes64(load(needle)), int32(s), int32(i)})
				f.stride = min(f.stride, len(needle)-f.q+1)
				size += len(needle)
			}
		}
	}
	f.sort(order, sources)
	f.enter(f.take(order, sources, size))
	return f
}

// enter sets the filters and the table.
func (f *finder) enter(common []int32) {
	heads, grams := 0, 0
	for _, same := range common {
		if int(same) < f.q {
			heads++
		}
		grams += max(f.stride-f.shared(same), 0)
	}
	f.heads.grow(heads)
	f.grams.grow(grams)
	if f.q > 2 {
		f.pairs = make([]uint64, 1<<16/64)
		f.begins.grow(heads * (f.q - 3))
		size := min(max(bits.Len(uint(heads*8)), 8), 17)
		f.lengths = make([]uint8, 1<<size)
		f.shift = uint8(64 - size)
	}
	span := f.stride + f.q - 1
	head := 0
	for i, same := range common {
		n := f.needles.at(i)
		if int(same) < f.q {
			if i > 0 {
				f.head(head, i)
			}
			head = i
			f.begin(n, int(same))
		}
		// What it has in common with the one before is there.
		for o := f.shared(same); o < f.stride; o++ {
			f.grams.add(load(n[o:]) & f.mask)
		}
		for o := int(same); o < span-1; o++ {
			f.ends[n[o]] = true
		}
	}
	f.head(head, len(common))
}

// shared is the number of grams in so many bytes.
func (f *finder) shared(bytes int32) int { return max(int(bytes)-f.q+1, 0) }

// head enters the first gram that the needles from lo to hi have in common.
func (f *finder) head(lo, hi int) {
	f.heads.put(bits.ReverseBytes64(f.keys[lo])&f.mask, lo, hi)
}

// begin enters the beginnings of a needle that are shorter than a gram, but for
// those of no more than same bytes.
func (f *finder) begin(n []byte, same int) {
	f.first[n[0]] = true
	if f.q > 2 {
		p := uint(n[1])<<8 | uint(n[0])
		f.pairs[p>>6] |= 1 << (p & 63)
	}
	g := load(n)
	for r := max(3, same+1); r < f.q; r++ {
		f.begins.add(beginning(g&(1<<(8*r)-1), r))
		f.lengths[g>>(8*(r-3))<<40*scatter>>f.shift] |= 1 << r
	}
}

// beginning is the key of r bytes, less than eight, in a filter.
func beginning(g uint64, r int) uint64 { return g | uint64(r)<<56 }

// load is the first eight bytes of a text, the first one lowest; zeros stand for
// those that it does not have.
func load(text []byte) uint64 {
	if len(text) >= 8 {
		return binary.LittleEndian.Uint64(text)
	}
	return loadShort(text)
}

func loadShort(text []byte) uint64 {
	var g uint64
	for i := range len(text) {
		g |= uint64(text[i]) << (8 * i)
	}
	return g
}

// findings are what finders found in a text, and what they may spend on it.
type findings struct {
	spans []span
	// credit is what may be spent still on places that look like a needle, in
	// units of about 5 ns.
	credit int
}

// span is a run of bytes by its offsets in a buffer.
type span struct{ from, to int }

// scan finds all needles in text, and the first byte of the longest end of the
// text that a needle begins with. Without credit it gives up.
func (f *finder) scan(text []byte, to *findings) (open int) {
	open = len(text)
	p := f.stride - 1
	g, stride, mask := f.grams, f.stride, f.mask
	for ; p+8 <= len(text); p += stride {
		if g.has(binary.LittleEndian.Uint64(text[p:p+8]) & mask) {
			if to.credit < 0 {
				return open
			}
			open = min(open, f.look(text, p-stride+1, p, to))
		}
	}
	for ; p+f.q <= len(text); p += stride {
		if g.has(load(text[p:]) & mask) {
			open = min(open, f.look(text, p-stride+1, p, to))
		}
	}
	// No needle that begins here or later is complete.
	return min(open, f.tail(text, p-stride+1, to))
}

// look finds the needles that begin at positions first to last.
func (f *finder) look(text []byte, first, last int, to *findings) (open int) {
	open = len(text)
	to.credit -= 1 + (last-first)/4
	for at := first; at <= last; at++ {
		gram := load(text[at:]) & f.mask
		if !f.heads.grams.has(gram) {
			continue
		}
		lo, hi := f.heads.get(gram, f.keys, f.mask)
		if lo == hi {
			continue
		}
		n, more := f.match(lo, hi, text[at:], to)
		if n > 0 {
			to.add(at, at+n)
		}
		if more {
			open = min(open, at)
		}
	}
	return open
}

// match is the length of the longest needle of those from lo to hi that text
// begins with, or 0, and whether a longer one begins with the whole of text.
func (f *finder) match(lo, hi int32, text []byte, to *findings) (n int, more bool) {
	to.credit -= 4
	end := hi
	for low := lo; low < end; {
		mid := int32(uint32(low+end) >> 1)
		needle := f.needles.at(int(mid))
		to.credit -= 1 + len(needle)/128
		if bytes.Compare(needle, text[:min(len(text), len(needle))]) <= 0 {
			low = mid + 1
		} else {
			end = mid
		}
	}
	// The needles before end sort before the text. If the last of them is not a
	// beginning of the text, then the longest that is is a beginning of it.
	if end < hi {
		longer := f.needles.at(int(end))
		more = len(longer) > len(text) && bytes.HasPrefix(longer, text)
	}
	if end == lo {
		return 0, more
	}
	i := end - 1
	same := commonPrefix(f.needles.at(int(i)), text)
	to.credit -= same / 32
	for ; i >= 0 && len(f.needles.at(int(i))) > same; i = f.shorter[i] {
		to.credit--
	}
	if i >= 0 {
		n = len(f.needles.at(int(i)))
	}
	return n, more
}

// tail is the position of the longest end of the text that begins at position
// first or later and that a needle begins with. It is shorter than any needle.
func (f *finder) tail(text []byte, first int, to *findings) int {
	if first >= len(text) || !f.ends[text[len(text)-1]] {
		return len(text)
	}
	open := len(text)
	if last := len(text) - f.q; first <= last {
		if f.grams.has(load(text[last:]) & f.mask) {
			open = f.look(text, first, last, to)
		}
		first = last + 1
	}
	if open < len(text) {
		return open
	}
	// The last eight bytes, or zeros and all: the shifts below leave the last r.
	var w uint64
	if len(text) >= 8 {
		w = binary.LittleEndian.Uint64(text[len(text)-8:])
	} else {
		w = load(text) << (64 - 8*len(text))
	}
	r := len(text) - first // less than q
	if r > 2 {
		lengths := f.lengths[w>>40<<40*scatter>>(f.shift&63)] & (1<<(r+1) - 1)
		for ; lengths != 0; lengths &^= 1 << r {
			r = bits.Len8(lengths) - 1
			if f.beginsWith(w>>(64-8*r), r) {
				return len(text) - r
			}
		}
		r = 2
	}
	for ; r > 0; r-- {
		if f.beginsWith(w>>(64-8*r), r) {
			return len(text) - r
		}
	}
	return len(text)
}

// beginsWith tells whether a needle begins with the r bytes of g, less than a
// gram.
func (f *finder) beginsWith(g uint64, r int) bool {
	switch r {
	case 1:
		return f.first[g]
	case 2:
		return f.pairs[g>>6]&(1<<(g&63)) != 0
	default:
		if !f.begins.has(beginning(g, r)) {
			return false
		}
		key := bits.ReverseBytes64(g)
		i, _ := slices.BinarySearch(f.keys, key)
		return i < len(f.keys) && f.keys[i]>>(64-8*r) == key>>(64-8*r)
	}
}

// add adds a finding. Most come in order.
func (r *findings) add(from, to int) {
	if n := len(r.spans); n > 0 && r.spans[n-1].from <= from && from <= r.spans[n-1].to {
		r.spans[n-1].to = max(r.spans[n-1].to, to)
		return
	}
	r.spans = append(r.spans, span{from, to})
}

// merge brings the spans in order and makes those that overlap or touch one.
func (r *findings) merge() {
	byFrom := func(a, b span) int { return cmp.Compare(a.from, b.from) }
	if !slices.IsSortedFunc(r.spans, byFrom) {
		slices.SortFunc(r.spans, byFrom)
	}
	n := 0
	for _, s := range r.spans {
		if n > 0 && s.from <= r.spans[n-1].to {
			r.spans[n-1].to = max(r.spans[n-1].to, s.to)
		} else {
			r.spans[n] = s
			n++
		}
	}
	r.spans = r.spans[:n]
}
