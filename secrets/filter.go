package secrets

import "math/bits"

// scatter multiplies the bytes of a gram into the highest bits.
const scatter = 0x9E3779B97F4A7C15

// filter is a set that may have more than was added: a Bloom filter of two bits
// for each member, both in one word. The zero value cannot be added to.
type filter struct {
	words []uint64
	shift uint8 // from a hash to a word's number
}

// grow makes an empty filter for n members, with 16 to 32 bits for each, so that
// about one stranger in a hundred is let through. It stops growing where the
// processor's second cache would no longer hold it.
func (f *filter) grow(n int) {
	size := min(max(bits.Len(uint(n/4)), 3), 17)
	f.words = make([]uint64, 1<<size)
	f.shift = uint8(64 - size)
}

func (f *filter) add(g uint64) {
	h := g * scatter
	f.words[h>>f.shift] |= 1<<(h>>30&63) | 1<<(h>>36&63)
}

func (f *filter) has(g uint64) bool {
	h := g * scatter
	w := f.words[h>>(f.shift&63)]
	return w>>(h>>30&63)&(w>>(h>>36&63))&1 != 0
}

// table has a range of needles for each gram: those that begin with
// it.
type table struct {
	grams filter // so that looking for one that is not there is cheap
	slots []slot
	shift uint8
}

type slot struct{ lo, hi int32 } // both 0 where the slot is free

// grow makes an empty table for n grams.
func (t *table) grow(n int) {
	size := max(bits.Len(uint(n*2)), 2)
	t.grams.grow(n)
	t.slots = make([]slot, 1<<size)
	t.shift = uint8(64 - size)
}

// put adds a gram that is not there, and its range.
func (t *table) put(gram uint64, lo, hi int) {
	t.grams.add(gram)
	i := gram * scatter >> t.shift
	for t.slots[i].hi != 0 {
		i = (i + 1) & uint64(len(t.slots)-1)
	}
	t.slots[i] = slot{int32(lo), int32(hi)}
}

// get is the range of a gram that grams has; it is empty for one that has none.
// first has the first bytes of each needle, of which mask leaves the gram.
func (t *table) get(gram uint64, first []uint64, mask uint64) (lo, hi int32) {
	for i := gram * scatter >> (t.shift & 63); ; i = (i + 1) & uint64(len(t.slots)-1) {
		s := t.slots[i]
		if s.hi == 0 || bits.ReverseBytes64(first[s.lo])&mask == gram {
			return s.lo, s.hi
		}
	}
}
