package secrets

import (
	"errors"
	"io"
	"sync"
)

// The masking algorithm, in steps:
//
//  1. Set.Add turns each value into patterns: the byte strings of the value and of
//     its encoded forms (forms.go, escapes.go).
//  2. The index groups the patterns into four classes by length. It has a few
//     matchers for each class (index.go). An index is immutable. When values
//     are added, the set makes a new index, which shares most matchers.
//  3. For each write, every matcher samples the text: at every stride-th position
//     it looks up the next q bytes, a gram, in a Bloom filter. The filter holds
//     the grams near the beginning of each pattern, so that no occurrence falls
//     between two samples. A hit is rare; the matcher then compares the patterns
//     that begin with the bytes around it, by binary search (matcher.go, bloom.go).
//  4. A match is an interval of the text. Intervals that overlap or touch are
//     merged (stream.go).
//  5. The open suffix is the longest end of the text that is a proper prefix of a
//     pattern. The next write could complete the pattern.
//  6. The masker writes the text before the open suffix, with each interval replaced
//     by one Replacement. It also replaces an interval that reaches into the open
//     suffix: no later text can change that. It keeps the open suffix for the
//     next write.
//     Line breaks within a pattern are ignored. So the matchers also sample the text
//     around each line break, and compare without breaks (breaks.go). The context is
//     the end of the written text, in which such a pattern may begin.
//  7. The lines of the text may be rows of a dump. Their bytes are further texts, which
//     streams of their own search in the same way (dump.go).
//
//  8. Comparing patterns costs time, and a text could cause it at every byte. So
//     the matchers have a credit. When the credit is used up, an Aho-Corasick
//     automaton over all patterns takes over for the next MiB (automaton.go). It
//     takes at most two steps for each byte on average, whatever the text is.
//
// For example, with the patterns "pass" and "password1":
//
//	write        text searched    intervals          open suffix   written
//	"my pass"    "my pass"        [3,7)              "pass"        "my ******"
//	"word1 or "  "password1 or "  [3,7)+[3,12)       none          " or "
//	"pa"         "pa"             none               "pa"          nothing
//	"y"          "pay"            none               none          "pay"
//
// In the second row the interval continues the one that the first row replaced, so
// there is no second Replacement.

// Masker is a writer that replaces the secrets of a [Set] in a text on the way to
// another writer (rule S4). It is safe for concurrent use. It writes to the other
// writer in order, one call at a time.
//
// A Masker holds back text only while the text may be the beginning of a secret: at
// most the length of the longest form of a value, or the rows of a dump that show as many
// bytes. Flush and Close write the text
// that is held back. A write of more than 64 KiB reaches the other writer in several
// parts. Unchanged text may reach the other writer as part of the caller's slice.
type Masker struct {
	set *Set

	// mu serialises the writes to w and guards the fields below.
	mu     sync.Mutex
	w      io.Writer
	stream stream
	err    error
	closed bool
}

// maxChunk is the number of bytes that are masked at once. It bounds the buffer that
// a large write needs.
const maxChunk = 64 << 10

var errClosed = errors.New("write to a closed masker")

// NewMasker returns a Masker that writes to w. It panics if set is nil, because the
// text would then reach w unmasked.
func NewMasker(w io.Writer, set *Set) *Masker {
	if set == nil {
		panic("secrets: NewMasker without a set")
	}
	return &Masker{set: set, w: w, stream: newStream(set.index())}
}

// Write masks p. After an error of the other writer, every Write returns that error.
func (m *Masker) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, errClosed
	}
	for n := 0; ; {
		m.updateIndex()
		chunk := p[n:min(n+maxChunk, len(p))]
		if err := m.writeOut(m.stream.write(chunk)); err != nil {
			return n, err
		}
		if n += len(chunk); n == len(p) {
			return n, nil
		}
	}
}

// Flush writes the text that is held back. If that text was the beginning of a
// secret, the beginning becomes visible; the rest of the secret is still masked.
// So call Flush only where the text pauses for a reader, not as a precaution.
func (m *Masker) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flush()
}

// Close writes the text that is held back and refuses further writes. It does not
// close the other writer. A second Close does nothing.
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
	m.updateIndex()
	return m.writeOut(m.stream.flush())
}

// updateIndex makes the stream search for the values that were added to the set.
func (m *Masker) updateIndex() {
	if x := m.set.index(); x != m.stream.index {
		m.stream.setIndex(x)
	}
}

func (m *Masker) writeOut(text []byte) error {
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
