package drivertest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Output keeps what a step writes, for the tests of drivers. It is safe for concurrent
// use. Use [NewOutput].
type Output struct {
	wrote chan struct{} // gets a value after a write

	mu     sync.Mutex
	b      bytes.Buffer // guarded by mu
	sealed bool         // no more may come; guarded by mu
	late   bool         // more came all the same; guarded by mu
}

// NewOutput makes an empty one.
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

// Wrote gives a value after a write, and one for several that nobody has waited for.
func (o *Output) Wrote() <-chan struct{} { return o.wrote }

// String is all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// seal makes every further write a late one.
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

// WaitFor returns when the output holds text, and ends the test when it does not within
// two minutes. One goroutine may wait at a time.
func (o *Output) WaitFor(tb testing.TB, text string) {
	tb.Helper()
	timer := time.NewTimer(2 * patience)
	defer timer.Stop()
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.wrote:
		case <-timer.C:
			tb.Fatalf("the output never held %q: %q", text, o.String())
		}
	}
}
