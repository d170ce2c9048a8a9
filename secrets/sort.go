package secrets

import (
	"bytes"
	"cmp"
	"slices"
)

// sort brings needles in order.
func (f *finder) sort(order []keyed, sources []*texts) {
	sortKeys(order, order[len(order):2*len(order)])
	byText := func(a, b keyed) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return bytes.Compare(a.in(sources), b.in(sources))
	}
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && order[j].key>>32 == order[i].key>>32 {
			j++
		}
		if j > i+1 {
			slices.SortFunc(order[i:j], byText)
		}
		i = j
	}
}

// take sets needles, keys and shorter from needles in order, which have size bytes
// together. It returns for each needle how many bytes it has in common with the
// one before it.
func (f *finder) take(order []keyed, sources []*texts, size int) (common []int32) {
	needles := texts{make([]byte, 0, size), make([]int, 0, len(order))}
	keys := make([]uint64, 0, len(order))
	shorter := make([]int32, 0, len(order))
	common = make([]int32, 0, len(order))
	var previous []byte
	for _, k := range order {
		n := k.in(sources)
		same := commonPrefix(previous, n)
		if same == len(n) && same == len(previous) {
			continue
		}
		up := int32(needles.len()) - 1
		for up >= 0 && len(needles.at(int(up))) > same {
			up = shorter[up]
		}
		needles.add(n)
		keys = append(keys, k.key)
		shorter = append(shorter, up)
		common = append(common, int32(same))
		previous = n
	}
	f.needles, f.keys, f.shorter = needles, keys, shorter
	return common
}

// keyed is a needle by its number, with its first bytes.
type keyed struct {
	key            uint64
	source, needle int32
}

// in is the needle.
func (k keyed) in(sources []*texts) []byte { return sources[k.source].at(int(k.needle)) }

// sortKeys sorts by the first half of the key, byte for byte from its last to its
// first: few needles but forms of one value have that in common. It uses spare,
// which is as long.
func sortKeys(keys, spare []keyed) {
	var counts [4][256]int32
	for _, k := range keys {
		counts[0][byte(k.key>>32)]++
		counts[1][byte(k.key>>40)]++
		counts[2][byte(k.key>>48)]++
		counts[3][byte(k.key>>56)]++
	}
	for b := range counts {
		at := &counts[b]
		sum := int32(0)
		for i, n := range at {
			at[i] = sum
			sum += n
		}
		for _, k := range keys {
			d := byte(k.key >> (32 + 8*b))
			spare[at[d]] = k
			at[d]++
		}
		keys, spare = spare, keys
	}
}
