package queue

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A sorted list is in order and has full chunks, after any inserts and removals.
func TestASortedList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s sorted[waiting]
		want := map[uint64]bool{}
		most := rapid.SampledFrom([]uint64{10, 200, 1000}).Draw(t, "most")
		for i := range rapid.Uint64Range(0, most).Draw(t, "filled") { // in order, as works arrive
			s.insert(waiting{turn: i})
			want[i] = true
		}
		step := func(t *rapid.T) uint64 { return rapid.Uint64Range(0, most).Draw(t, "turn") }
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				if x := step(t); !want[x] {
					s.insert(waiting{turn: x})
					want[x] = true
				}
			},
			"remove": func(t *rapid.T) {
				x := step(t)
				s.remove(waiting{turn: x})
				delete(want, x)
			},
			"remove many": func(t *rapid.T) {
				from, to := step(t), step(t)
				for x := from; x < to; x++ {
					s.remove(waiting{turn: x})
					delete(want, x)
				}
			},
			"": func(t *rapid.T) {
				checkSorted(t, s)
				turns := slices.Sorted(maps.Keys(want))
				require.Equal(t, len(turns), s.size)
				i := 0
				for x := range s.all() {
					require.Equal(t, turns[i], x.turn)
					i++
				}
				first, ok := s.first()
				require.Equal(t, len(turns) > 0, ok)
				if ok {
					require.Equal(t, turns[0], first.turn)
				}
				x := step(t)
				rank, _ := slices.BinarySearch(turns, x)
				require.Equal(t, rank, s.rank(waiting{turn: x}))
				for c := range len(s.chunks) - 1 {
					require.Greater(t, len(s.chunks[c])+len(s.chunks[c+1]), chunkSize/2, "chunks are merged")
				}
			},
		})
	})
}
