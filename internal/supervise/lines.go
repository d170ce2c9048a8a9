package supervise

import (
	"bytes"
	"sync"
	"time"
)

// Lines is a writer that passes on complete lines, without their ends. It cuts long lines into parts, and leaves out
// empty lines. It is safe for concurrent use.
type Lines struct {
	// Line gets each line, one at a time. It must not keep the text.
	Line func(text []byte)
	// Longest is the length of a part in bytes.
	Longest int
	// Each is how many lines are passed on in each period of Period; further ones are counted, and Dropped gets their
	// number when the next line is passed on. 0 is no limit.
	Each    int
	Period  time.Duration
	Dropped func(n int)

	mu      sync.Mutex
	rest    []byte    // guarded by mu
	begun   time.Time // of the period; guarded by mu
	passed  int       // lines of the period; guarded by mu
	dropped int       // guarded by mu
}

// Write never fails.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, complete := bytes.Cut(p, []byte{'\n'})
		p = rest
		for len(l.rest)+len(line) > l.Longest {
			room := l.Longest - len(l.rest)
			l.pass(append(l.rest, line[:room]...))
			l.rest, line = l.rest[:0], line[room:]
		}
		l.rest = append(l.rest, line...)
		if complete {
			l.pass(l.rest)
			l.rest = l.rest[:0]
		}
	}
	return n, nil
}

// Flush passes on the line that has no end.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass(l.rest)
	l.rest = l.rest[:0]
	l.tellDropped()
}

func (l *Lines) pass(line []byte) {
	if line = bytes.TrimRight(line, "\r"); len(line) == 0 {
		return
	}
	if l.Each > 0 {
		if now := time.Now(); now.Sub(l.begun) >= l.Period {
			l.begun, l.passed = now, 0
		}
		if l.passed >= l.Each {
			l.dropped++
			return
		}
		l.passed++
		l.tellDropped()
	}
	l.Line(line)
}

func (l *Lines) tellDropped() {
	if l.dropped > 0 {
		l.Dropped(l.dropped)
		l.dropped = 0
	}
}
