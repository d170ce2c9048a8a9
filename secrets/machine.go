package secrets

import (
	"bytes"
	"slices"
)

// machine is an Aho-Corasick automaton over bytes. State 0 is the start. The
// states are the prefixes of the needles, shorter ones first, so that the
// children of a state are next to each other.
type machine struct {
	start [256]int32 // the state after a byte at the start
	// By state. The children of s are first[s] up to first[s+1].
	label   []byte
	first   []int32
	fail    []int32 // the longest proper suffix that is a state
	depth   []int32 // the length of the prefix
	longest []int32 // the length of the longest needle that ends here, or 0
}

// compile builds the machine for needles, none of which is empty.
func compile(needles []string) *machine {
	sorted := slices.Clone(needles)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)

	// The states in order of their length, each with the range of sorted needles
	// that have its prefix.
	type span struct{ lo, hi int }
	spans := []span{{0, len(sorted)}}
	m := &machine{label: []byte{0}, depth: []int32{0}, longest: []int32{0}}
	for s := 0; s < len(spans); s++ {
		m.first = append(m.first, int32(len(spans)))
		lo, hi, d := spans[s].lo, spans[s].hi, int(m.depth[s])
		if lo < hi && len(sorted[lo]) == d && d > 0 {
			m.longest[s] = int32(d)
			lo++
		}
		for lo < hi {
			b := sorted[lo][d]
			end := lo + 1
			for end < hi && sorted[end][d] == b {
				end++
			}
			spans = append(spans, span{lo, end})
			m.label = append(m.label, b)
			m.depth = append(m.depth, int32(d+1))
			m.longest = append(m.longest, 0)
			lo = end
		}
	}
	m.first = append(m.first, int32(len(spans)))
	m.link()
	return m
}

// link finds the suffixes. A state's is shorter, so it comes earlier.
func (m *machine) link() {
	m.fail = make([]int32, len(m.depth))
	for c := m.first[0]; c < m.first[1]; c++ {
		m.start[m.label[c]] = c
	}
	for s := int32(1); s < int32(len(m.depth)); s++ {
		for c := m.first[s]; c < m.first[s+1]; c++ {
			f := m.step(m.fail[s], m.label[c])
			m.fail[c] = f
			m.longest[c] = max(m.longest[c], m.longest[f])
		}
	}
}

// step is the state after byte b.
func (m *machine) step(s int32, b byte) int32 {
	for s != 0 {
		lo := m.first[s]
		if i := bytes.IndexByte(m.label[lo:m.first[s+1]], b); i >= 0 {
			return lo + int32(i)
		}
		s = m.fail[s]
	}
	return m.start[b]
}

func (m *machine) empty() bool { return len(m.depth) == 1 }
