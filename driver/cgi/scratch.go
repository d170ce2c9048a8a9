package cgi

import (
	"fmt"
	"os"
	"sync"
)

// maxScratch limits the number of empty directories that wait for calls.
const maxScratch = 64

// scratch manages the working directories of calls. It reuses a directory that is still
// empty: creating and removing it is a large part of the cost of a small program.
type scratch struct {
	mu   sync.Mutex
	free []string // guarded by mu
}

// take returns an empty directory.
func (s *scratch) take() (string, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		dir := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		// A cleaner of the temporary directory may have removed it, and another user may
		// have created one with the same name.
		if isEmpty(dir) {
			return dir, nil
		}
	} else {
		s.mu.Unlock()
	}
	dir, err := os.MkdirTemp("", "dlite-cgi-")
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	return dir, nil
}

// give returns a directory that is not in use any more.
func (s *scratch) give(dir string) {
	if isEmpty(dir) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.free) < maxScratch {
			s.free = append(s.free, dir)
			return
		}
	}
	_ = os.RemoveAll(dir)
}

func (s *scratch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range s.free {
		_ = os.RemoveAll(dir)
	}
	s.free = nil
}
