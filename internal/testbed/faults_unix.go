//go:build unix

package testbed

import (
	"maps"
	"os"
	"sync"
	"syscall"
)

// Faults are the points at which a process can be made to die: its code passes them
// by name. The zero value counts them and kills nobody. It is safe for concurrent
// use.
type Faults struct {
	// At is the point at which the process kills itself with SIGKILL, when it passes
	// it for the Nth time.
	At string
	N  int

	mu     sync.Mutex
	passed map[string]int
}

// Pass says that the process has come to a point. It does not return from the one
// that is its end.
func (f *Faults) Pass(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passed == nil {
		f.passed = map[string]int{}
	}
	f.passed[point]++
	if point == f.At && f.passed[point] == f.N {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it takes a moment
	}
}

// Counts says how often each point was passed.
func (f *Faults) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.passed)
}
