package secrets

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// This file has the search of the matchers around the breaks of a text.

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
