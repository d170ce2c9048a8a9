package drivertest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Output stores the output of a step, for tests of drivers. It is safe for concurrent
// use. Create it with [NewOutput].
type Output struct {
	wrote chan struct{} // gets a value after a write

	mu     sync.Mutex
	b      bytes.Buffer // guarded by mu
	sealed bool         // no more writes are allowed; guarded by mu
	late   bool         // a write came after seal; guarded by mu
}

// NewOutput returns an empty Output.
func NewOutput() *Output { return &Output{wrote: make(chan struct{}, 1)} }

// Write implements [io.Writer]. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = o.late || o.sealed
	n, err := o.b.Write(p)
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return n, err
}

// Wrote returns a channel that gets a value after a write. Several writes without a
// receive in between count as one.
func (o *Output) Wrote() <-chan struct{} { return o.wrote }

// String returns everything that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// seal marks each further write as late.
func (o *Output) seal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed = true
}

func (o *Output) wasLate() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.late
}

// WaitFor returns when the output contains text. It fails the test after two minutes.
// Only one goroutine may wait at a time.
func (o *Output) WaitFor(tb testing.TB, text string) {
	tb.Helper()
	timer := time.NewTimer(2 * patience)
	defer timer.Stop()
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.wrote:
		case <-timer.C:
			tb.Fatalf("the output does not contain %q: %q", text, o.String())
		}
	}
}
