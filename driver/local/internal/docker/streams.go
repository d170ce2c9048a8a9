package docker

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
)

const (
	// maxHeld limits how many bytes of a stream wait for the end of a line of the other stream.
	maxHeld = 64 << 10
	// longestHold limits how long they wait, because a prompt or a row of dots has no end of line.
	longestHold = 5 * time.Second
)

// copyStreams copies the two streams of a container's output, which the engine sends interleaved. It
// passes on text at once, but not inside an unfinished line of the other stream. Both streams share
// one log, and a mask does not recognize a secret that is interrupted by other text (rule S4).
func copyStreams(stdout, stderr io.Writer, from io.Reader) error {
	p := newPair(stdout, stderr, longestHold)
	_, copied := stdcopy.StdCopy(&p.streams[0], &p.streams[1], from)
	return errors.Join(copied, p.end())
}

// pair merges two streams between lines.
type pair struct {
	hold time.Duration

	mu      sync.Mutex
	streams [2]stream
	open    *stream // the stream with the unfinished line
	ended   bool
	err     error
}

// stream is one stream of a pair. The pair's lock guards it.
type stream struct {
	pair  *pair
	other *stream
	w     io.Writer
	held  []byte // until the line of the other stream ends
	timer *time.Timer
}

func newPair(a, b io.Writer, hold time.Duration) *pair {
	p := &pair{hold: hold}
	p.streams = [2]stream{{pair: p, other: &p.streams[1], w: a}, {pair: p, other: &p.streams[0], w: b}}
	return p
}

// Write implements [io.Writer].
func (s *stream) Write(b []byte) (int, error) {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	s.add(b)
	return len(b), s.pair.err
}

// add passes text on, or holds it.
func (s *stream) add(b []byte) {
	if s.pair.open == s.other || len(s.held) > 0 {
		s.hold(b)
		return
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 || len(s.other.held) == 0 {
		s.pass(b)
		return
	}
	s.pass(b[:end])
	s.other.release()
	if end < len(b) {
		s.add(b[end:])
	}
}

func (s *stream) hold(b []byte) {
	s.held = append(s.held, b...)
	switch {
	case len(s.held) >= maxHeld:
		s.release()
	case s.timer == nil:
		s.timer = time.AfterFunc(s.pair.hold, s.expire)
	}
}

// expire ends a hold that takes too long.
func (s *stream) expire() {
	s.pair.mu.Lock()
	defer s.pair.mu.Unlock()
	s.release()
}

// release passes on the held text.
func (s *stream) release() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if len(s.held) == 0 || s.pair.ended {
		return
	}
	b := s.held
	s.held = nil
	s.pass(b)
}

func (s *stream) pass(b []byte) {
	if len(b) == 0 {
		return
	}
	_, err := s.w.Write(b)
	s.pair.err = errors.Join(s.pair.err, err)
	switch {
	case b[len(b)-1] != '\n':
		s.pair.open = s
	case s.pair.open == s:
		s.pair.open = nil
		s.other.release()
	}
}

// end passes on the remaining text. Nothing is written after it.
func (p *pair) end() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.streams {
		p.streams[i].release()
	}
	p.ended = true
	return p.err
}
