package secrets

// This file has the context of a stream: the end of the decided text that a form with a break may
// begin with.

// contextOf returns the offset of the context in decided text: less than minHead bytes, and
// the break after them.
func contextOf(text []byte) int {
	k := len(text)
	for k > 0 && len(text)-k < maxIndent && isBlank(text[k-1]) {
		k--
	}
	if k > 0 && text[k-1] == '\n' {
		k--
	} else {
		k = len(text)
	}
	for n := 0; n < 2 && k > 0 && text[k-1] == '\r'; n++ {
		k--
	}
	if k > 0 && text[k-1] == '=' {
		k--
	}
	return max(0, k-minHead+1)
}

// continues reports whether the search of text needs the context.
func (s *stream) continues(text []byte) bool {
	if len(text) < maxBreak+minHead {
		return true // the next context is not in text alone
	}
	if last := s.context[len(s.context)-1]; !endsBreak(last) && !mayBegin(0, text[0]) {
		return false // no break between them
	}
	if len(text) < 4<<10 {
		return true
	}
	// It is costly to copy much text, and rarely necessary.
	var buf [4 * maxBreak]byte
	end := append(append(buf[:0], s.context...), text[:2*maxBreak]...)
	for i, b := range end {
		if b != '\n' {
			continue
		}
		if _, to, ok := breakAt(end, i); ok && to >= len(s.context) {
			return s.index.mayContinue(end[to:])
		}
	}
	return false
}
