package secrets

import (
	"cmp"
	"slices"
)

// interval is a run of masked bytes, by offsets in the text.
type interval struct{ from, to int64 }

// cover masks intervals that may be masked already.
func (s *stream) cover(intervals []interval) {
	n := len(s.masked)
	for _, iv := range intervals {
		if iv.to > s.decided {
			s.masked = append(s.masked, interval{max(iv.from, s.decided), iv.to})
		}
	}
	if n == len(s.masked) {
		return
	}
	s.matched = true
	undecided := mergeIntervals(s.masked[s.done:])
	s.masked = s.masked[:s.done+len(undecided)]
}

// mergeIntervals sorts intervals, and joins those that overlap or touch.
func mergeIntervals(all []interval) []interval {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	merged := all[:0]
	for _, iv := range all {
		if n := len(merged); n > 0 && iv.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, iv.to)
		} else {
			merged = append(merged, iv)
		}
	}
	return merged
}
