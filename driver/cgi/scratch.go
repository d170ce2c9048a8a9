package cgi

import (
	"fmt"
	"os"
	"sync"
)

// maxScratch is how many empty folders are kept.
const maxScratch = 64

// scratch are the working directories of calls. One that is as good as new serves
// the next call: making and removing it costs a good part of what a small program
// takes.
type scratch struct {
	mu   sync.Mutex
	free []string // guarded by mu
}

// take gives an empty folder.
func (s *scratch) take() (string, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		dir := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		// Something may have cleared the temporary folder up, and then anybody may have
		// made another one of that name.
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

// give takes a folder back that nobody uses any more.
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
