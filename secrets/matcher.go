package secrets

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// classes are the parameters of matchers, by the length of their patterns. At every
// stride-th position of the text, a matcher reads a gram of q bytes and looks it up
// among the grams at the first stride offsets of its patterns. No occurrence of a
// pattern with at least stride+q-1 bytes falls between two positions. Shorter
// patterns belong to a later class, so that one short secret does not slow down the
// search for the others. If all patterns of a matcher are longer, its stride is up
// to twice that of its class.
var classes = [...]struct{ q, stride int }{{8, 8}, {4, 4}, {2, 2}, {1, 1}}

// classOf returns the first class that takes patterns of this length.
func classOf(pattern []byte) int {
	for i, c := range classes {
		if len(pattern) >= c.stride+c.q-1 {
			return i
		}
	}
	panic("secrets: an empty pattern")
}

// matcher finds the patterns of one class. It is immutable.
type matcher struct {
	q, stride int
	mask      uint64 // selects the lowest q bytes
	broken    bool   // breaks in the patterns are ignored (breaks.go)
	longest   int    // the length of the longest pattern

	patterns      patternList // sorted, distinct
	keys          []uint64    // the first eight bytes of each pattern, big-endian
	longestPrefix []int32     // for each pattern, the longest other one that is a prefix of it, or -1

	grams      bloomFilter // the grams within the first stride+q-1 bytes of a pattern
	firstGrams gramTable   // the patterns by their first gram

	// The fields below find an open suffix that is shorter than a gram.
	suffixBytes [256]bool   // bytes of patterns before offset stride+q-2
	firstByte   [256]bool   // first bytes of patterns
	firstPair   []uint64    // first two bytes of patterns, one bit for each pair; only if q > 2
	prefixes    bloomFilter // prefixes of patterns with 3 to q-1 bytes
	// prefixLengths has a bit for each possible length of such a prefix, by a hash
	// of its last three bytes.
	prefixLengths []uint8
	lengthShift   uint8 // of a hash, to get an index of prefixLengths
}

// newMatcher returns a matcher for the n patterns in sources that have this class.
func newMatcher(class, n int, sources []*patternList) *matcher {
	m := &matcher{q: classes[class].q, stride: 2 * classes[class].stride}
	m.mask = 1<<(8*m.q) - 1 // 1<<64 is 0
	m.broken = m.q+classes[class].stride-1 >= minBroken
	entries := make([]sortEntry, 0, 2*n)
	size := 0
	for i, list := range sources {
		for j := range list.len() {
			p := list.at(j)
			if classOf(p) == class {
				entries = append(entries, sortEntry{bits.ReverseBytes64(load(p)), int32(i), int32(j)})
				m.stride = min(m.stride, len(p)-m.q+1)
				m.longest = max(m.longest, len(p))
				size += len(p)
			}
		}
	}
	sortEntries(entries, sources)
	m.fillFilters(m.setPatterns(entries, sources, size))
	return m
}

// fillFilters fills the filters and tables. common has for each pattern the length
// of the prefix that it shares with the previous pattern.
func (m *matcher) fillFilters(common []int32) {
	first, grams := 0, 0
	for _, same := range common {
		if int(same) < m.q {
			first++
		}
		grams += max(m.stride-m.gramsIn(same), 0)
	}
	m.firstGrams.allocate(first)
	m.grams.allocate(grams)
	if m.q > 2 {
		m.firstPair = make([]uint64, 1<<16/64)
		m.prefixes.allocate(first * (m.q - 3))
		size := min(max(bits.Len(uint(first*8)), 8), 17)
		m.prefixLengths = make([]uint8, 1<<size)
		m.lengthShift = uint8(64 - size)
	}
	span := m.stride + m.q - 1
	lo := 0 // the first pattern with the current first gram
	for i, same := range common {
		p := m.patterns.at(i)
		if int(same) < m.q {
			if i > 0 {
				m.addFirstGram(lo, i)
			}
			lo = i
			m.addPrefixes(p, int(same))
		}
		// The filters have the grams that the pattern shares with the previous one.
		for o := m.gramsIn(same); o < m.stride; o++ {
			m.grams.add(load(p[o:]) & m.mask)
		}
		for o := int(same); o < span-1; o++ {
			m.suffixBytes[p[o]] = true
		}
	}
	m.addFirstGram(lo, len(common))
}

// gramsIn returns the number of grams in n bytes.
func (m *matcher) gramsIn(n int32) int { return max(int(n)-m.q+1, 0) }

// addFirstGram adds the gram with which the patterns from lo to hi begin.
func (m *matcher) addFirstGram(lo, hi int) {
	m.firstGrams.put(bits.ReverseBytes64(m.keys[lo])&m.mask, lo, hi)
}

// addPrefixes adds the prefixes of a pattern that are shorter than a gram and longer
// than same bytes.
func (m *matcher) addPrefixes(p []byte, same int) {
	m.firstByte[p[0]] = true
	if m.q > 2 {
		pair := uint(p[1])<<8 | uint(p[0])
		m.firstPair[pair>>6] |= 1 << (pair & 63)
	}
	g := load(p)
	for n := max(3, same+1); n < m.q; n++ {
		m.prefixes.add(prefixKey(g&(1<<(8*n)-1), n))
		m.prefixLengths[g>>(8*(n-3))<<40*hashFactor>>m.lengthShift] |= 1 << n
	}
}

// prefixKey returns the key of n bytes in prefixes. n is less than 8.
func prefixKey(g uint64, n int) uint64 { return g | uint64(n)<<56 }

// load returns the first eight bytes of text, little-endian. Missing bytes are 0.
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

// matchList collects the matches of several matchers.
type matchList struct {
	matches []match
	floor   int // matches that begin before it are ignored
	credit  int // the cost that comparisons may still have, in units of about 5 ns
}

// match is an occurrence of patterns, by offsets in the searched text.
type match struct{ from, to int }

// search adds all matches in text to l. It returns the offset of the open suffix.
// It gives up when the credit is used up.
func (m *matcher) search(text []byte, l *matchList) (open int) {
	open = len(text)
	p := m.stride - 1
	grams, stride, mask := m.grams, m.stride, m.mask
	for ; p+8 <= len(text); p += stride {
		if grams.mayContain(binary.LittleEndian.Uint64(text[p:p+8]) & mask) {
			if l.credit < 0 {
				return open
			}
			open = min(open, m.matchAround(text, p-stride+1, p, l))
		}
	}
	for ; p+m.q <= len(text); p += stride {
		if grams.mayContain(load(text[p:]) & mask) {
			open = min(open, m.matchAround(text, p-stride+1, p, l))
		}
	}
	// No occurrence that begins at or after this position is complete.
	return min(open, m.openSuffix(text, max(p-stride+1, l.floor), l))
}

// matchAround adds the matches that begin at the positions first to last. It
// returns the first of these positions at which an open suffix begins.
func (m *matcher) matchAround(text []byte, first, last int, l *matchList) (open int) {
	open = len(text)
	l.credit -= 1 + (last-first)/4
	for at := max(first, l.floor); at <= last; at++ {
		gram := load(text[at:]) & m.mask
		if !m.firstGrams.filter.mayContain(gram) {
			continue
		}
		lo, hi := m.firstGrams.get(gram, m.keys, m.mask)
		if lo == hi {
			continue
		}
		n, more := m.longestMatch(lo, hi, text[at:], l)
		if n > 0 {
			l.add(at, at+n)
		}
		if more {
			open = min(open, at)
		}
		if !m.broken {
			continue
		}
		reach := at + m.longest + 3 // "=", CR and CR may precede the newline
		rest := text[at+m.q : min(len(text), reach)]
		l.credit -= len(rest) / 64
		if (bytes.IndexByte(rest, '\n') >= 0 || len(text) < reach) && isData(text, at) {
			open = min(open, m.matchBroken(text, at, l))
		}
	}
	return open
}

// longestMatch returns the length of the longest pattern from lo to hi that is a
// prefix of text, or 0. It also reports whether text is a proper prefix of one of
// these patterns.
func (m *matcher) longestMatch(lo, hi int32, text []byte, l *matchList) (n int, more bool) {
	l.credit -= 4
	end := hi
	for low := lo; low < end; {
		mid := int32(uint32(low+end) >> 1)
		p := m.patterns.at(int(mid))
		l.credit -= 1 + len(p)/128
		if bytes.Compare(p, text[:min(len(text), len(p))]) <= 0 {
			low = mid + 1
		} else {
			end = mid
		}
	}
	// The patterns before end are not greater than text. If the last of them is not
	// a prefix of text, then the longest prefix of text is a prefix of that pattern.
	if end < hi {
		longer := m.patterns.at(int(end))
		more = len(longer) > len(text) && bytes.HasPrefix(longer, text)
	}
	if end == lo {
		return 0, more
	}
	i := end - 1
	same := commonPrefix(m.patterns.at(int(i)), text)
	l.credit -= same / 32
	for ; i >= 0 && len(m.patterns.at(int(i))) > same; i = m.longestPrefix[i] {
		l.credit--
	}
	if i >= 0 {
		n = len(m.patterns.at(int(i)))
	}
	return n, more
}

// openSuffix returns the offset of the longest end of text that begins at or after
// position first and is a prefix of a pattern. It is shorter than each pattern.
func (m *matcher) openSuffix(text []byte, first int, l *matchList) int {
	if first >= len(text) || !m.suffixBytes[text[len(text)-1]] {
		return len(text)
	}
	open := len(text)
	if last := len(text) - m.q; first <= last {
		if m.grams.mayContain(load(text[last:]) & m.mask) {
			open = m.matchAround(text, first, last, l)
		}
		first = last + 1
	}
	if open < len(text) {
		return open
	}
	// w has the last eight bytes of text in its highest bytes; the shifts below
	// select the last n of them.
	var w uint64
	if len(text) >= 8 {
		w = binary.LittleEndian.Uint64(text[len(text)-8:])
	} else {
		w = load(text) << (64 - 8*len(text))
	}
	n := len(text) - first // less than q
	if n > 2 {
		lengths := m.prefixLengths[w>>40<<40*hashFactor>>(m.lengthShift&63)] & (1<<(n+1) - 1)
		for ; lengths != 0; lengths &^= 1 << n {
			n = bits.Len8(lengths) - 1
			if m.hasPrefix(w>>(64-8*n), n) {
				return len(text) - n
			}
		}
		n = 2
	}
	for ; n > 0; n-- {
		if m.hasPrefix(w>>(64-8*n), n) {
			return len(text) - n
		}
	}
	return len(text)
}

// hasPrefix reports whether a pattern begins with the n bytes in g. n is less than q.
func (m *matcher) hasPrefix(g uint64, n int) bool {
	switch n {
	case 1:
		return m.firstByte[g]
	case 2:
		return m.firstPair[g>>6]&(1<<(g&63)) != 0
	default:
		if !m.prefixes.mayContain(prefixKey(g, n)) {
			return false
		}
		key := bits.ReverseBytes64(g)
		i, _ := slices.BinarySearch(m.keys, key)
		return i < len(m.keys) && m.keys[i]>>(64-8*n) == key>>(64-8*n)
	}
}

// add adds a match. Usually the matches arrive sorted.
func (l *matchList) add(from, to int) {
	if from < l.floor {
		return
	}
	if n := len(l.matches); n > 0 && l.matches[n-1].from <= from && from <= l.matches[n-1].to {
		l.matches[n-1].to = max(l.matches[n-1].to, to)
		return
	}
	l.matches = append(l.matches, match{from, to})
}

// merge sorts the matches, and joins those that overlap or touch.
func (l *matchList) merge() {
	byFrom := func(a, b match) int { return cmp.Compare(a.from, b.from) }
	if !slices.IsSortedFunc(l.matches, byFrom) {
		slices.SortFunc(l.matches, byFrom)
	}
	n := 0
	for _, m := range l.matches {
		if n > 0 && m.from <= l.matches[n-1].to {
			l.matches[n-1].to = max(l.matches[n-1].to, m.to)
		} else {
			l.matches[n] = m
			n++
		}
	}
	l.matches = l.matches[:n]
}
