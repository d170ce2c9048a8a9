package secrets

import "slices"

// Needles are the texts that a set looks for.
func Needles(s *Set) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.needles)
}
