package cgi

import (
	"bytes"
	"sync"
	"time"
)

const (
	// maxBuffer is how much output waits for its log, in bytes.
	maxBuffer = 1 << 20
	// patience is how long a full buffer is waited for.
	patience = 2 * time.Second
)

// buffer stands between a program and its log. A log that is slow slows the program
// down; one that takes nothing at all loses output instead. Only whole lines are
// lost, because a part of a secret could not be masked.
type buffer struct {
	mu     sync.Mutex
	b      []byte // guarded by mu
	lost   int64  // guarded by mu: bytes that came after b
	broken bool   // guarded by mu: the line that is being written has lost its beginning
	stuck  bool   // guarded by mu: the log was waited for, and has taken nothing since
	taken  int    // guarded by mu: how often it has taken something
	closed bool   // guarded by mu
	news   chan struct{}
	room   chan struct{}
}

func newBuffer() *buffer {
	return &buffer{news: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Write takes everything.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(p)
	for len(b.b)+len(p) > maxBuffer && len(b.b) > 0 && !b.stuck && !b.closed {
		b.waitForRoom()
	}
	if b.broken && !b.stuck {
		i := bytes.IndexByte(p, '\n') + 1
		b.broken = i == 0
		if b.broken {
			i = len(p)
		}
		b.lost += int64(i)
		p = p[i:]
	}
	switch {
	case b.stuck:
		end := bytes.LastIndexByte(b.b, '\n') + 1
		b.lost += int64(len(b.b) - end + len(p))
		b.b, b.broken = b.b[:end], len(p) > 0 && p[len(p)-1] != '\n'
	default:
		b.b = append(b.b, p...)
	}
	signal(b.news)
	return n, nil
}

// waitForRoom is called with mu held. It returns when the log has taken something,
// which an old signal does not prove, or when it was waited for in vain.
func (b *buffer) waitForRoom() {
	before := b.taken
	over := time.NewTimer(patience)
	defer over.Stop()
	for b.taken == before && !b.stuck {
		b.mu.Unlock()
		vain := false
		select {
		case <-b.room:
		case <-over.C:
			vain = true
		}
		b.mu.Lock()
		b.stuck = vain && b.taken == before
	}
}

// next returns what was written since the last time, and how much was lost after
// it. It waits for something, and reports false when nothing comes any more.
func (b *buffer) next() (text []byte, lost int64, ok bool) {
	for {
		b.mu.Lock()
		text, lost = b.b, b.lost
		b.b, b.lost, b.stuck = nil, 0, false
		b.taken++
		closed := b.closed
		b.mu.Unlock()
		signal(b.room)
		if len(text) > 0 || lost > 0 {
			return text, lost, true
		}
		if closed {
			return nil, 0, false
		}
		<-b.news
	}
}

// close ends what next waits for.
func (b *buffer) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	signal(b.news)
}

// signal leaves a value in a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
