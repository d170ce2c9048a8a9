package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// The cost of a stage must not grow with the number of stages that wait: compare the
// sub-benchmarks.
func BenchmarkStageThroughTheQueue(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			q := New(Config{MaxFinished: 100})
			d := q.Register(acc, Registration{Name: "d"})
			_ = q.SetCapacity(acc, d, 1)
			add := func(i int) {
				id := fmt.Sprint("s", i)
				if err := q.Submit(acc, &Work{ID: id, Stage: true, Variants: one(id, "init")}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range n {
				add(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				add(n + i)
				id := fmt.Sprint("s", i)
				if t, err := q.Acquire(acc, d, id); t == nil || err != nil {
					b.Fatal(id, err)
				}
				if err := q.Complete(acc, d, id, Answer{Outcome: Success, Code: task.OK}); err != nil {
					b.Fatal(err)
				}
				if err := q.Release(acc, id); err != nil {
					b.Fatal(err)
				}
				q.Events()
			}
		})
	}
}

// selective is a queue with delegates of which each lacks one selector of a stage.
type selective struct {
	*Queue
	selectors []string
	next      int
}

func newSelective(selectors int) *selective {
	s := &selective{Queue: New(Config{MaxFinished: 1})}
	for i := range selectors {
		s.selectors = append(s.selectors, fmt.Sprint("selector", i*7919%selectors))
	}
	for i := range 4 {
		s.Register(acc, Registration{Tags: s.selectors[i+1:]})
	}
	return s
}

// cycle submits a stage with all selectors, and takes it back.
func (s *selective) cycle(t require.TestingT) {
	s.next++
	id := fmt.Sprint("s", s.next)
	require.NoError(t, s.Submit(acc, &Work{ID: id, Stage: true, Selectors: s.selectors, Variants: one(id, "init")}))
	require.NoError(t, s.Abort(acc, id, ""))
	require.NoError(t, s.Release(acc, id))
	s.Events()
}

// A stage with the most selectors that a manager accepts.
func BenchmarkManySelectors(b *testing.B) {
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("selectors=%d", n), func(b *testing.B) {
			s := newSelective(n)
			b.ReportAllocs()
			for b.Loop() {
				s.cycle(b)
			}
		})
	}
}
