package logger

import (
	"bytes"
	"unicode/utf8"
)

// lineSplitter splits bytes into lines, which keep their newlines. It splits a line
// of more than max bytes into pieces, between characters if the text is UTF-8.
type lineSplitter struct {
	max  int
	rest []byte // of an incomplete line
}

// write splits the rest of the previous call and p. The argument of emit is valid
// until emit returns.
func (c *lineSplitter) write(p []byte, emit func([]byte)) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		whole := end > 0
		if !whole {
			end = len(p)
		}
		// Limit the copy: a write of gigabytes must not allocate that much.
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
				c.emitPiece(emit)
			}
		}
		p = p[end:]
	}
}

// emitPiece emits the rest of a line that is too long, without an incomplete
// character at its end.
func (c *lineSplitter) emitPiece(emit func([]byte)) {
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
func (c *lineSplitter) flush(emit func([]byte)) {
	if len(c.rest) > 0 {
		emit(c.rest)
		c.rest = nil
	}
}
