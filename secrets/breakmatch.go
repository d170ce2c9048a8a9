package secrets

// This file compares patterns with the data of a text: its bytes without breaks.

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

// longestBroken is longestMatch for the data of text. It returns the comparison with the
// longest pattern that is a prefix of the data, and the one with a pattern of which the
// data is a prefix.
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
