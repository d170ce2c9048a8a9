package manager

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// maxSets bounds the sets of selectors that an account has series for, since
	// the start of the process; maxSet is the length of such a label in bytes.
	maxSets = 50
	maxSet  = 128
	// other stands for all sets beyond that.
	other = "other"
)

// sets are the sets of selectors that have a label, by account. Submitters choose
// selectors, so they could make any number of series.
type sets struct {
	mu    sync.Mutex
	known map[string]map[string]bool
}

// label is that of a set: the selectors in lower case, sorted, with commas
// between them; empty for none.
func (s *sets) label(account string, selectors []string) string {
	if len(selectors) == 0 {
		return ""
	}
	folded := make([]string, 0, len(selectors))
	for _, sel := range selectors {
		folded = append(folded, strings.ToLower(strings.TrimSpace(sel)))
	}
	slices.Sort(folded)
	label := strings.Join(slices.Compact(folded), ",")
	if len(label) > maxSet || !utf8.ValidString(label) {
		return other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[account]
	if known == nil {
		known = map[string]bool{}
		s.known[account] = known
	}
	if !known[label] && len(known) >= maxSets {
		return other
	}
	known[label] = true
	return label
}
