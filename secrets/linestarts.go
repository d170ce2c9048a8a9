package secrets

// lineStarts has the offsets in a text at which lines that may be rows begin, in order. The search
// for breaks finds them, because it looks at each newline.
type lineStarts struct {
	known bool
	at    []int
}

// maxLineStarts bounds the offsets. Beyond it, they are not known.
const maxLineStarts = 64

// add adds the line that begins at an offset of text, unless the line cannot be a row.
func (l *lineStarts) add(text []byte, at int) {
	if at < len(text) && !mayBeRow(text[at:]) {
		return
	}
	if len(l.at) == maxLineStarts {
		l.known = false
		return
	}
	l.at = append(l.at, at)
}

// none reports whether no line begins after an offset.
func (l *lineStarts) none(after int) bool {
	return len(l.at) == 0 || l.at[len(l.at)-1] <= after
}

// next returns the beginning of the first line after an offset, or 0.
func (l *lineStarts) next(after int) int {
	for _, at := range l.at {
		if at > after {
			return at
		}
	}
	return 0
}
