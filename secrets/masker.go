package secrets

import (
	"errors"
	"io"
	"sync"
)

// Masker is a writer that replaces the secrets of a [Set] in a text that passes
// through it (SPEC S4). It is safe for concurrent use; its writes to the other
// writer come one at a time, in order.
//
// A Masker holds back text only while it may turn out to be the beginning of a
// secret, which is at most the length of the longest form of any value. Flush or
// Close pass it on. A byte costs two steps of an automaton at most on average,
// however many secrets there are and whatever they begin with.
type Masker struct {
	set *Set

	// mu serialises the writes to w and guards what follows.
	mu     sync.Mutex
	w      io.Writer
	c      coverer
	out    []byte
	err    error
	closed bool
}

var errClosed = errors.New("write to a closed masker")

// NewMasker makes a writer that passes on to w. It panics without a set: text
// would go through unmasked.
func NewMasker(w io.Writer, set *Set) *Masker {
	if set == nil {
		panic("secrets: a masker without a set")
	}
	return &Masker{set: set, w: w}
}

// Write masks p. When w has failed once, Write fails with its error from then on.
func (m *Masker) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, errClosed
	}
	m.c.use(m.set.compiled())
	m.out = m.c.write(m.out[:0], p)
	if err := m.pass(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what is held back. If it was the beginning of a secret, that
// beginning shows; what follows of the secret will be masked still. Flush where
// the text pauses for a person to read it, not to be on the safe side.
func (m *Masker) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flush()
}

// Close passes on what is held back and refuses further writes. It does not
// close the other writer. Closing again does nothing.
func (m *Masker) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return m.flush()
}

func (m *Masker) flush() error {
	m.c.use(m.set.compiled())
	m.out = m.c.flush(m.out[:0])
	return m.pass()
}

func (m *Masker) pass() error {
	if m.err != nil || len(m.out) == 0 {
		return m.err
	}
	n, err := m.w.Write(m.out)
	if err == nil && n < len(m.out) {
		err = io.ErrShortWrite
	}
	m.err = err
	return err
}
