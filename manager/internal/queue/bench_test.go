package queue

import (
	"fmt"
	"testing"

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
