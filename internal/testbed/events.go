package testbed

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Events is a log that a test can wait for. It is safe for concurrent use, by one waiter at a time.
type Events struct {
	mu    sync.Mutex
	b     bytes.Buffer // guarded by mu
	wrote chan struct{}
}

// NewEvents returns an empty log.
func NewEvents() *Events { return &Events{wrote: make(chan struct{}, 1)} }

// Write implements [io.Writer]. It never fails.
func (e *Events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.wrote <- struct{}{}:
	default:
	}
	return e.b.Write(p)
}

// String returns the whole log.
func (e *Events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.b.String()
}

// Wrote returns a channel that receives a value after a write.
func (e *Events) Wrote() <-chan struct{} { return e.wrote }

// WaitFor returns when s has been logged n times. It fails the test after a minute.
func (e *Events) WaitFor(t *testing.T, s string, n int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for strings.Count(e.String(), s) < n {
		select {
		case <-e.wrote:
		case <-timeout:
			require.FailNow(t, "never logged", "%q %d times: %s", s, n, e)
		}
	}
}
