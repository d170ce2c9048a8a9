package secrets

import (
	"bytes"
	"cmp"
	"slices"
)

// sortEntry refers to a pattern and has its sort key.
type sortEntry struct {
	key             uint64 // the first eight bytes, big-endian
	source, pattern int32  // index of a list, and of the pattern in it
}

func (e sortEntry) in(sources []*patternList) []byte { return sources[e.source].at(int(e.pattern)) }

// sortEntries sorts entries by pattern. The slice has spare capacity for a copy.
func sortEntries(entries []sortEntry, sources []*patternList) {
	radixSort(entries, entries[len(entries):2*len(entries)])
	byPattern := func(a, b sortEntry) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return bytes.Compare(a.in(sources), b.in(sources))
	}
	for i := 0; i < len(entries); {
		j := i + 1
		for j < len(entries) && entries[j].key>>32 == entries[i].key>>32 {
			j++
		}
		if j > i+1 {
			slices.SortFunc(entries[i:j], byPattern)
		}
		i = j
	}
}

// setPatterns sets patterns, keys and longestPrefix from sorted entries, without
// duplicates. size is the total length of the patterns. It returns for each pattern
// the length of the prefix that it shares with the previous pattern.
func (m *matcher) setPatterns(entries []sortEntry, sources []*patternList, size int) (common []int32) {
	patterns := patternList{make([]byte, 0, size), make([]int, 0, len(entries))}
	keys := make([]uint64, 0, len(entries))
	longestPrefix := make([]int32, 0, len(entries))
	common = make([]int32, 0, len(entries))
	var previous []byte
	for _, e := range entries {
		p := e.in(sources)
		same := commonPrefix(previous, p)
		if same == len(p) && same == len(previous) {
			continue
		}
		prefix := int32(patterns.len()) - 1
		for prefix >= 0 && len(patterns.at(int(prefix))) > same {
			prefix = longestPrefix[prefix]
		}
		patterns.add(p)
		keys = append(keys, e.key)
		longestPrefix = append(longestPrefix, prefix)
		common = append(common, int32(same))
		previous = p
	}
	m.patterns, m.keys, m.longestPrefix = patterns, keys, longestPrefix
	return common
}

// radixSort sorts entries by the upper half of the key, from its lowest byte to its
// highest. Few patterns share these bytes, except forms of the same value. spare has
// the same length as entries and is overwritten.
func radixSort(entries, spare []sortEntry) {
	var counts [4][256]int32
	for _, e := range entries {
		counts[0][byte(e.key>>32)]++
		counts[1][byte(e.key>>40)]++
		counts[2][byte(e.key>>48)]++
		counts[3][byte(e.key>>56)]++
	}
	for b := range counts {
		at := &counts[b]
		sum := int32(0)
		for i, n := range at {
			at[i] = sum
			sum += n
		}
		for _, e := range entries {
			d := byte(e.key >> (32 + 8*b))
			spare[at[d]] = e
			at[d]++
		}
		entries, spare = spare, entries
	}
}
