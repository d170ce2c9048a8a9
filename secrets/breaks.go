package secrets

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Tools wrap long encodings: base64 at 64 or 76 columns, quoted-printable with soft
// breaks, YAML with an indentation. So a line break within a form is ignored. The
// data of a text are its bytes without breaks. A break is
//
//	"=" (optional), at most two CR, LF, at most maxIndent spaces and tabs
//
// It neither begins after CR or LF, nor ends before white space, nor has an indentation
// before "=". A form of at least minBroken bytes is
// found in the data. If fewer than minHead bytes of it precede the first break, they
// stay visible: otherwise the ends of ordinary lines would be held back.
const (
	maxIndent = 32
	minBroken = 7
	minHead   = 4
	maxBreak  = 4 + maxIndent
)

// breakAt returns the break that has the newline text[i]. If the text ends with the
// break, later text may show that it is none.
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

// refutesBreak reports whether b, after a newline and an indentation, shows that they are
// no break. A line of quoted-printable may begin with "=".
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

// comparison is the result of comparing a pattern with the data of a text.
type comparison struct {
	same  int  // length of the common prefix
	to    int  // offset after it in the text
	head  int  // bytes of it before the first break, or -1 without a break
	after int  // offset after the first break
	ended bool // the data ends, and the pattern does not
	less  bool // the pattern is not greater than the data
}

// compareBroken compares a pattern with the data of a text, which begins with data.
func compareBroken(p, text []byte) comparison {
	c := comparison{head: -1}
	for at := 0; ; {
		if c.same == len(p) {
			c.less = true
			return c
		}
		if at == len(text) {
			c.ended = true
			return c
		}
		if p[c.same] != text[at] {
			c.less = p[c.same] < text[at]
			return c
		}
		c.same, c.to = c.same+1, at+1
		if at = nextData(text, c.to); at > c.to && c.head < 0 && c.same < len(p) {
			c.head, c.after = c.same, at
		}
	}
}

// longestBroken does for the data of text what longestMatch does for text. It returns the
// comparison with the longest pattern that is a prefix of the data, and the one with a
// pattern of which the data is a prefix.
func (m *matcher) longestBroken(lo, hi int32, text []byte, l *matchList) (found, more comparison) {
	end := hi
	for low := lo; low < end; {
		mid := int32(uint32(low+end) >> 1)
		c := compareBroken(m.patterns.at(int(mid)), text)
		l.credit -= 2 + c.to/4
		if c.less {
			low = mid + 1
		} else {
			end = mid
		}
	}
	if end < hi {
		if c := compareBroken(m.patterns.at(int(end)), text); c.ended {
			more = c
		}
	}
	if end == lo {
		return found, more
	}
	i := end - 1
	same := compareBroken(m.patterns.at(int(i)), text).same
	for ; i >= 0 && len(m.patterns.at(int(i))) > same; i = m.longestPrefix[i] {
		l.credit--
	}
	if i >= 0 {
		found = compareBroken(m.patterns.at(int(i)), text)
	}
	return found, more
}

// matchBroken adds the longest match that begins at an offset and has a break in it. It
// returns the offset of the open suffix that begins there.
func (m *matcher) matchBroken(text []byte, at int, l *matchList) (open int) {
	l.credit -= 2
	text, offset, size := text[at:], at, len(text)
	gram, n := brokenGram(text, m.q)
	var found, more comparison
	if n < m.q {
		if n == 0 || !m.hasPrefix(gram, n) {
			return size
		}
		p := make([]byte, 0, 8) // any longer text that begins with the data
		for i := range n {
			p = append(p, byte(gram>>(8*i)))
		}
		more = compareBroken(append(p, 0), text)
	} else {
		if !m.firstGrams.filter.mayContain(gram) {
			return size
		}
		lo, hi := m.firstGrams.get(gram, m.keys, m.mask)
		if lo == hi {
			return size
		}
		found, more = m.longestBroken(lo, hi, text, l)
	}
	if found.same > 0 && found.head >= 0 {
		l.add(offset+found.from(), offset+found.to)
	}
	if from := offset + more.from(); more.same > 0 && more.head >= 0 && from >= l.floor {
		return min(from, size)
	}
	return size
}

// from returns the offset at which masking begins.
func (c *comparison) from() int {
	if c.head < minHead {
		return c.after
	}
	return 0
}

// aroundBreak adds the matches that begin before a break, so near that no sample of search
// finds them.
func (m *matcher) aroundBreak(text []byte, to int, l *matchList) (open int) {
	open = len(text)
	var buf [24]int
	for _, at := range dataBefore(text, to, buf[:0:m.q+m.stride-1]) {
		open = min(open, m.matchBroken(text, at, l))
	}
	return open
}

// searchBreaks adds the matches with a break near their beginning, and returns the offset
// of the open suffix. It gives up when the credit is used up.
//
// It samples the data at the end of each break, and the bytes before the break. Every match
// that begins before the break, and that search does not find by a sample in its line, has
// one of these samples among its first grams.
//
// It adds the lines of the text to lines.
func (x *index) searchBreaks(text []byte, l *matchList, lines *lineStarts) (open int) {
	open = len(text)
	lastFrom, lastTo, previousTo := 0, 0, 0 // the last break, and the end of the one before
	for next := 0; l.credit >= 0; {
		n := bytes.IndexByte(text[next:], '\n')
		if n < 0 {
			break
		}
		from := next + n
		to := from + 1
		next = to
		lines.add(text, to)
		var before, after uint64
		size := 8
		if from >= 8 && to+8 <= len(text) && text[from-1] > '\r' && text[from-1] != '=' && text[to] > ' ' && text[to] != '=' {
			before, after = binary.LittleEndian.Uint64(text[from-8:]), binary.LittleEndian.Uint64(text[to:])
		} else {
			var ok bool
			if from, to, ok = breakAt(text, from); !ok || from == 0 {
				continue
			}
			before = lastBytes(text[:from])
			after, size = load(text[to:]), min(8, len(text)-to)
		}
		lastFrom, lastTo, previousTo = from, to, lastTo
		if mayBreak(after) {
			l.credit -= 8
			after, size = brokenGram(text[to:], 8)
		}
		for _, m := range x.matchers {
			if m.broken && (size >= m.q && m.grams.mayContain(after&m.mask) ||
				from >= m.q && size > 0 && m.grams.mayContain(before>>(64-8*m.q))) {
				open = min(open, m.aroundBreak(text, to, l))
			}
		}
	}
	switch last := len(text) - 1; {
	case last < 0:
	case text[last] == '=' || text[last] == '\r':
		for k := max(1, last-2); k <= last; k++ {
			if nextData(text, k) == len(text) { // a break has begun
				return min(open, x.openBroken(text, k, lastBytes(text[:k]), k-lastTo >= 8, l))
			}
		}
	}
	if n := len(text) - lastTo; lastTo > 0 && n < 8 {
		w := lastBytes(text[:lastFrom])>>(8*n) | loadShort(text[lastTo:])<<(8*(8-n))
		open = min(open, x.openBroken(text, len(text), w, lastFrom-previousTo >= 8-n, l))
	}
	return open
}

// lastBytes returns the last eight bytes of text, the last one highest.
func lastBytes(text []byte) uint64 {
	if len(text) >= 8 {
		return binary.LittleEndian.Uint64(text[len(text)-8:])
	}
	return loadShort(text) << (64 - 8*len(text))
}

// mayBreak reports whether the eight bytes of a gram may contain the beginning of a break.
func mayBreak(gram uint64) bool {
	return hasNewline(gram) || byte(gram>>56) == '=' || byte(gram>>56) == '\r'
}

func hasNewline(gram uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	lf := gram ^ '\n'*ones
	return (lf-ones)&^lf&tops != 0
}

// openBroken returns the offset of the longest open suffix with a break among its last
// bytes. The data end at end, with the bytes w if known is set.
func (x *index) openBroken(text []byte, end int, w uint64, known bool, l *matchList) (open int) {
	open = len(text)
	var buf [24]int
	pos := buf[:0]
	if !known {
		l.credit -= 8
		pos = dataBefore(text, end, pos)
		w = 0
		for i := range min(8, len(pos)) {
			w |= uint64(text[pos[i]]) << (8 * (7 - i))
		}
	}
	for _, m := range x.matchers {
		if !m.broken {
			continue
		}
		gram := m.grams.mayContain(w >> (64 - 8*m.q))
		lengths := m.prefixLengths[w>>40<<40*hashFactor>>(m.lengthShift&63)]
		if m.firstPair[w>>54]>>(w>>48&63)&1 != 0 {
			lengths |= 1 << 2
		}
		if !gram && lengths == 0 {
			continue
		}
		if len(pos) == 0 {
			pos = dataBefore(text, end, pos)
		}
		if gram && len(pos) >= m.q {
			for _, at := range pos[m.q-1 : min(len(pos), m.q+m.stride-1)] {
				open = min(open, m.matchBroken(text, at, l))
			}
		}
		for ; lengths != 0; lengths &= lengths - 1 {
			if n := bits.TrailingZeros8(lengths); n <= len(pos) && n < m.q {
				open = min(open, m.matchBroken(text, pos[n-1], l))
			}
		}
	}
	return open
}

// mayContinue reports whether text, after a break, may continue a pattern.
func (x *index) mayContinue(text []byte) bool {
	gram, n := brokenGram(text, 8)
	for _, m := range x.matchers {
		if m.broken && (n < 8 || m.grams.mayContain(gram&m.mask)) {
			return true
		}
	}
	return false
}

// brokenState is the state of the automaton over the data of a text. While it is off, it is
// the automaton's state over the text.
type brokenState struct {
	on       bool
	state    int32
	previous byte  // the last byte of state
	count    int64 // data since the state is on
	breaks   []breakMark

	pending byte // 0, or the kind of the last byte of a break that has begun
	indent  int
	// The state before the pending break. The other fields are those that hold if it is no
	// break.
	saved         int32
	savedPrevious byte
	savedCount    int64
	from          int64   // offset of the pending break
	late          []match // matches that end in the pending break, by length and offset
}

// breakMark is a break, and the number of bytes of data before it.
type breakMark struct{ from, to, count int64 }

// Kinds of the last byte of a pending break.
const (
	pendingEqual = 1 + iota
	pendingCR
	pendingCRCR
	pendingLF
)

// stepBroken does a step with a byte at an offset. before and after are the automaton's
// states over the text.
func (s *stream) stepBroken(before, after int32, previous, b byte, at int64) {
	q := &s.broken
	if !q.on {
		if !mayBegin(previous, b) {
			return
		}
		*q = brokenState{on: true, state: before, previous: previous, breaks: q.breaks[:0], late: q.late[:0]}
	}
	switch {
	case q.pending == 0:
	case q.pending == pendingLF && isBlank(b) && q.indent < maxIndent:
		q.indent++
		s.dataByte(b, at)
		return
	case q.pending == pendingLF && !refutesBreak(b, q.indent):
		q.state, q.previous, q.count, q.pending = q.saved, q.savedPrevious, q.savedCount, 0
		q.addBreak(breakMark{q.from, at, q.count}, int64(s.automaton.depth[q.state]))
		s.dataByte(b, at)
		q.on = q.state != after
		return
	case q.pending < pendingLF && b == '\n':
		q.pending, q.indent = pendingLF, 0
		s.dataByte(b, at)
		return
	case q.pending < pendingCRCR && b == '\r':
		q.pending++
		s.dataByte(b, at)
		return
	default:
		q.pending = 0
		for _, m := range q.late {
			s.addBroken(int64(m.from), int64(m.to))
		}
	}
	if mayBegin(q.previous, b) {
		q.saved, q.savedPrevious, q.savedCount, q.from, q.late = q.state, q.previous, q.count, at, q.late[:0]
		switch b {
		case '=':
			q.pending = pendingEqual
		case '\r':
			q.pending = pendingCR
		default:
			q.pending, q.indent = pendingLF, 0
		}
	}
	s.dataByte(b, at)
	q.on = q.pending != 0 || q.state != after
}

// addBreak adds a break, and removes those that a match with the depth does not reach.
func (q *brokenState) addBreak(b breakMark, depth int64) {
	if n := len(q.breaks); n >= 64 && q.breaks[n/2].count <= b.count-depth {
		q.breaks = q.breaks[:copy(q.breaks, q.breaks[n/2:])]
	}
	q.breaks = append(q.breaks, b)
}

// dataByte does a step with a byte of data, and adds the longest match that ends there.
func (s *stream) dataByte(b byte, at int64) {
	q, a := &s.broken, s.automaton
	q.state = a.step(q.state, q.previous, b)
	q.previous = b
	q.count++
	n := int64(a.nodes[q.state].longest)
	if n == 0 {
		return
	}
	q.state = a.skipLeaves(q.state)
	switch {
	case n < minBroken:
	case q.pending != 0:
		q.late = append(q.late, match{int(q.count - n), int(at + 1)})
	default:
		s.addBroken(q.count-n, at+1)
	}
}

// addBroken masks a match that begins at an index of the data, if there is a break in it.
func (s *stream) addBroken(index, to int64) {
	if from, ok := s.broken.origin(index); ok {
		s.addMatch(from, to)
	}
}

// origin returns the offset at which masking begins for a match that begins at an index of the
// data. It reports whether there is a break after the index.
func (q *brokenState) origin(index int64) (from int64, ok bool) {
	i, _ := slices.BinarySearchFunc(q.breaks, index, func(b breakMark, index int64) int {
		if b.count <= index {
			return -1
		}
		return 1
	})
	if i == len(q.breaks) {
		return 0, false
	}
	b := q.breaks[i]
	if head := b.count - index; head >= minHead {
		return b.from - head, true
	}
	return b.to, true
}

// open returns the offset of the open suffix with a break in it that begins at floor or later,
// in a text that ends at end.
func (q *brokenState) open(a *automaton, floor, end int64) int64 {
	state, count := q.state, q.count
	if q.pending != 0 {
		state, count = q.saved, q.savedCount
	}
	for ; state != 0; state = a.nodes[state].failure {
		if !a.inLong[state] {
			continue
		}
		depth := int64(a.depth[state])
		from, ok := q.origin(count - depth)
		if !ok {
			if q.pending == 0 || depth < minHead {
				return end
			}
			from = q.from - depth
		}
		if from >= floor {
			return from
		}
	}
	return end
}
