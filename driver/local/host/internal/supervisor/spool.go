package supervisor

import (
	"bytes"
	"sync"
)

const (
	// spoolLimit is how many bytes of a step's output a supervisor holds for a driver that comes later.
	spoolLimit = 8 << 20
	// spoolLead is how many bytes a step may be ahead of the driver that reads its output. Then the step
	// waits. A step without a reader does not wait.
	spoolLead = 1 << 20
)

// spool holds the output of a step. It drops the oldest lines when it is full. It is safe for
// concurrent use. Use newSpool.
type spool struct {
	mu      sync.Mutex
	held    []byte
	first   int64 // position of held in the output
	dropped int   // lines before held
	closed  bool
	reader  int64         // position of the reader, -1 without one
	changed chan struct{} // closed at the next change
}

func newSpool() *spool { return &spool{reader: -1, changed: make(chan struct{})} }

// notify wakes all goroutines that wait for a change. The caller holds mu.
func (s *spool) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Write waits while the reader is too far behind. It never fails.
func (s *spool) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, b...)
	if len(s.held) > spoolLimit {
		s.drop()
	}
	s.notify()
	for s.reader >= 0 && s.first+int64(len(s.held))-s.reader > spoolLead {
		changed := s.changed
		s.mu.Unlock()
		<-changed
		s.mu.Lock()
	}
	return len(b), nil
}

// drop removes the older half of the held lines. The caller holds mu.
func (s *spool) drop() {
	n := len(s.held) - spoolLimit/2
	if i := bytes.IndexByte(s.held[n:], '\n'); i >= 0 {
		n += i + 1
	}
	s.dropped += bytes.Count(s.held[:n], []byte("\n"))
	s.first += int64(n)
	s.held = append(make([]byte, 0, spoolLimit+64<<10), s.held[n:]...)
}

// close ends the output.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.notify()
}

// begin makes the caller the reader, in place of any other. It returns the position of the first byte
// and how many lines came before it.
func (s *spool) begin() (at int64, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader = s.first
	s.notify()
	return s.first, s.dropped
}

// leave undoes begin.
func (s *spool) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader = -1
	s.notify()
}

// next appends output from a position on to buf, at most its capacity. Without output it returns a
// channel that is closed at the next change, or ended.
func (s *spool) next(at int64, buf []byte) (out []byte, wait <-chan struct{}, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.held[max(at-s.first, 0):]
	if len(rest) == 0 {
		return nil, s.changed, s.closed
	}
	return append(buf[:0], rest[:min(len(rest), cap(buf))]...), nil, false
}

// advance tells that the reader has passed on the output before at.
func (s *spool) advance(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader >= 0 && at-s.reader >= spoolLead/4 {
		s.reader = at
		s.notify()
	}
}

func (s *spool) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// empty drops all lines, unless a driver reads them.
func (s *spool) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader >= 0 {
		return
	}
	s.dropped += bytes.Count(s.held, []byte("\n"))
	s.first += int64(len(s.held))
	s.held = nil
}
