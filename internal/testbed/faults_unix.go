//go:build unix

package testbed

import (
	"maps"
	"os"
	"sync"
	"syscall"
)

// Faults holds the points at which a process can be killed. The process calls Pass with the
// name of each. The zero value counts them and kills no process. It is safe for concurrent
// use.
type Faults struct {
	// At is a point. The process kills itself with SIGKILL when it passes that point the Nth
	// time.
	At string
	N  int

	mu     sync.Mutex
	passed map[string]int
}

// Pass counts a point. It kills the process, and does not return, if the point is the one in
// At.
func (f *Faults) Pass(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passed == nil {
		f.passed = map[string]int{}
	}
	f.passed[point]++
	if point == f.At && f.passed[point] == f.N {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal takes a moment
	}
}

// Counts returns how many times each point was passed.
func (f *Faults) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.passed)
}
