package secrets

import "math/bits"

// hashFactor is the multiplier of a multiplicative hash, whose highest bits are used.
const hashFactor = 0x9E3779B97F4A7C15

// bloomFilter is a Bloom filter with two bits for each member, both in the same
// word. The zero value is not usable; call allocate first.
type bloomFilter struct {
	words []uint64
	shift uint8 // of a hash, to get the index of a word
}

// allocate makes the filter empty, with 16 to 32 bits for each of n members. About one
// in a hundred other keys is a false positive. The size is bounded by the second
// cache level of a processor.
func (f *bloomFilter) allocate(n int) {
	size := min(max(bits.Len(uint(n/4)), 3), 17)
	f.words = make([]uint64, 1<<size)
	f.shift = uint8(64 - size)
}

func (f *bloomFilter) add(key uint64) {
	h := key * hashFactor
	f.words[h>>f.shift] |= 1<<(h>>30&63) | 1<<(h>>36&63)
}

// mayContain reports whether key was added. It may report true for other keys.
func (f *bloomFilter) mayContain(key uint64) bool {
	h := key * hashFactor
	w := f.words[h>>(f.shift&63)]
	return w>>(h>>30&63)&(w>>(h>>36&63))&1 != 0
}

// gramTable is a hash table from a gram to the range of the sorted patterns that
// begin with it.
type gramTable struct {
	filter bloomFilter // makes it cheap to look up a gram that is not in the table
	slots  []gramSlot
	shift  uint8
}

type gramSlot struct{ lo, hi int32 } // hi is 0 in a free slot

// allocate makes the table empty, with room for n grams.
func (t *gramTable) allocate(n int) {
	size := max(bits.Len(uint(n*2)), 2)
	t.filter.allocate(n)
	t.slots = make([]gramSlot, 1<<size)
	t.shift = uint8(64 - size)
}

// put adds a gram that is not in the table.
func (t *gramTable) put(gram uint64, lo, hi int) {
	t.filter.add(gram)
	i := gram * hashFactor >> t.shift
	for t.slots[i].hi != 0 {
		i = (i + 1) & uint64(len(t.slots)-1)
	}
	t.slots[i] = gramSlot{int32(lo), int32(hi)}
}

// get returns the range of a gram that filter may contain, or an empty range.
// keys are the first bytes of each pattern; mask selects the gram in them.
func (t *gramTable) get(gram uint64, keys []uint64, mask uint64) (lo, hi int32) {
	for i := gram * hashFactor >> (t.shift & 63); ; i = (i + 1) & uint64(len(t.slots)-1) {
		s := t.slots[i]
		if s.hi == 0 || bits.ReverseBytes64(keys[s.lo])&mask == gram {
			return s.lo, s.hi
		}
	}
}
