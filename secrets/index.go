package secrets

import (
	"math"
	"slices"
	"sync"
)

// index is the patterns of a Set at some moment, prepared for searching. It is
// immutable.
type index struct {
	matchers  []*matcher
	broken    bool              // a matcher ignores breaks
	shortest  int               // no pattern is shorter
	automaton func() *automaton // over all patterns; built at the first call
}

// newIndex returns an index of matchers. Several may have the same class.
func newIndex(matchers []*matcher) *index {
	shortest := math.MaxInt
	for _, m := range matchers {
		shortest = min(shortest, m.stride+m.q-1)
	}
	return &index{
		matchers: matchers,
		shortest: shortest,
		broken:   slices.ContainsFunc(matchers, func(m *matcher) bool { return m.broken }),
		automaton: sync.OnceValue(func() *automaton {
			var all [][]byte
			for _, m := range matchers {
				for i := range m.patterns.len() {
					all = append(all, m.patterns.at(i))
				}
			}
			return newAutomaton(all)
		}),
	}
}

// with returns an index that also has the added patterns. No pattern is empty.
//
// Each class has several matchers. Each has at least growth times as many patterns
// as the next one. Added patterns make a new last matcher, which absorbs the
// matchers before it that are too small. So a pattern is indexed at most growth
// times for each of the few sizes, and the average cost of an addition does not
// depend on the number of patterns in the index.
func (x *index) with(added *patternList) *index {
	const growth = 8
	var count [len(classes)]int
	for i := range added.len() {
		count[classOf(added.at(i))]++
	}
	var matchers []*matcher
	for c, n := range count {
		var same []*matcher
		for _, m := range x.matchers {
			if m.q == classes[c].q {
				same = append(same, m)
			}
		}
		if n > 0 {
			sources := []*patternList{added}
			for last := len(same) - 1; last >= 0 && n*growth > same[last].patterns.len(); last-- {
				n += same[last].patterns.len()
				sources = append(sources, &same[last].patterns)
				same = same[:last]
			}
			same = append(same, newMatcher(c, n, sources))
		}
		matchers = append(matchers, same...)
	}
	return newIndex(matchers)
}
