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
// Close pass it on. A write of more than 64 KiB reaches the other writer as several.
// What passes through unchanged may be passed on as part of the very slice that
// was written.
type Masker struct {
	set *Set

	// mu serialises the writes to w and guards what follows.
	mu     sync.Mutex
	w      io.Writer
	c      coverer
	err    error
	closed bool
}

// maxPiece is the number of bytes that are masked at once, so that a large write
// costs no large buffer.
const maxPiece = 64 << 10

var errClosed = errors.New("write to a closed masker")

// NewMasker makes a writer that passes on to w. It panics without a set: text
// would go through unmasked.
func NewMasker(w io.Writer, set *Set) *Masker {
	if set == nil {
		panic("secrets: a masker without a set")
	}
	return &Masker{set: set, w: w, c: newCoverer(set.index())}
}

// Write masks p. When the other writer has failed once, Write fails with its error
// from then on.
func (m *Masker) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, errClosed
	}
	for n := 0; ; {
		m.renew()
		piece := p[n:min(n+maxPiece, len(p))]
		if err := m.pass(m.c.write(piece)); err != nil {
			return n, err
		}
		if n += len(piece); n == len(p) {
			return n, nil
		}
	}
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
	m.renew()
	return m.pass(m.c.flush())
}

// renew looks for what the set has by now.
func (m *Masker) renew() {
	if x := m.set.index(); x != m.c.index {
		m.c.use(x)
	}
}

func (m *Masker) pass(text []byte) error {
	if m.err != nil || len(text) == 0 {
		return m.err
	}
	n, err := m.w.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	m.err = err
	return err
}
