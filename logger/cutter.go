package logger

import (
	"bytes"
	"unicode/utf8"
)

// cutter cuts bytes into lines. A line keeps its newline. One that is longer
// than max is cut into pieces of at most max bytes, between characters where
// the text is UTF-8.
type cutter struct {
	max  int
	rest []byte // of a line without a newline yet
}

// write cuts p and what was left before. The slices that emit gets are good
// until it returns.
func (c *cutter) write(p []byte, emit func([]byte)) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		whole := end > 0
		if !whole {
			end = len(p)
		}
		// Bounded before it is copied: a write of gigabytes costs no memory.
		if room := c.max - len(c.rest); end > room {
			end, whole = room, false
		}
		if whole && len(c.rest) == 0 {
			emit(p[:end])
		} else {
			c.rest = append(c.rest, p[:end]...)
			switch {
			case whole:
				emit(c.rest)
				c.rest = c.rest[:0]
			case len(c.rest) == c.max:
				c.piece(emit)
			}
		}
		p = p[end:]
	}
}

// piece emits what there is of a line that is too long, but for a character
// that is not complete.
func (c *cutter) piece(emit func([]byte)) {
	n := len(c.rest)
	for i := n - 1; i > 0 && i >= n-utf8.UTFMax; i-- {
		if utf8.RuneStart(c.rest[i]) {
			if !utf8.FullRune(c.rest[i:]) {
				n = i
			}
			break
		}
	}
	emit(c.rest[:n])
	c.rest = append(c.rest[:0], c.rest[n:]...)
}

// flush emits the last line if it has no newline.
func (c *cutter) flush(emit func([]byte)) {
	if len(c.rest) > 0 {
		emit(c.rest)
		c.rest = nil
	}
}
