package manager

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// maxSets is the largest number of selector sets per account that get a separate
	// series, since the process started. maxSet is the longest label, in
	// bytes.
	maxSets = 50
	maxSet  = 128
	// other is the label of all further sets.
	other = "other"
)

// sets holds the selector sets that have a label, by account. Submitters choose
// selectors, so without a bound they could create any number of series.
type sets struct {
	mu    sync.Mutex
	known map[string]map[string]bool
}

// label returns the label of a set: its selectors in lower case, sorted and joined
// with commas. It is empty for an empty set.
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
