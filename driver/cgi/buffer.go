package cgi

import (
	"bytes"
	"sync"
	"time"
)

const (
	// maxBuffer limits the output that waits for the log, in bytes.
	maxBuffer = 1 << 20
	// patience limits the time that Write waits while the buffer is full.
	patience = 2 * time.Second
)

// buffer passes output from a program to its log. A slow log slows the program down.
// If the log takes nothing for the time patience, the buffer drops output instead. It
// drops only whole lines, because a part of a secret could not be masked.
type buffer struct {
	mu     sync.Mutex
	b      []byte // guarded by mu
	lost   int64  // guarded by mu: number of bytes dropped after b
	broken bool   // guarded by mu: the beginning of the current line was dropped
	stuck  bool   // guarded by mu: Write timed out, and the log has accepted nothing since
	taken  int    // guarded by mu: number of writes that the log accepted
	closed bool   // guarded by mu
	news   chan struct{}
	room   chan struct{}
}

func newBuffer() *buffer {
	return &buffer{news: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Write accepts all of p and never fails.
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

// waitForRoom returns when the log has taken something, or when the time patience has
// passed. A signal may be an old one, so waitForRoom compares b.taken. The caller holds
// mu.
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

// next waits for output. It returns the text since the last call, and the number of
// bytes that were dropped after it. ok is false after close, when no output remains.
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

// close marks the end of the output.
func (b *buffer) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	signal(b.news)
}

// signal sends a value to a channel with a buffer of one, and never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
