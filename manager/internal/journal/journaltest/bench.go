package journaltest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// payload is the approximate size of a stage's command, in bytes.
const payload = 300

// Benchmark measures commands on a number of journals, each of which represents a
// process. The concurrent callers are distributed over the journals.
func Benchmark(b *testing.B, fresh func(testing.TB) Opener, journals int) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			open := fresh(b)
			all := make([]Journal, journals)
			for i := range all {
				all[i] = Open(b, open, func(c *journal.Config[Command]) { c.CompactAfter = 1 << 40 })
			}
			pad := make([]byte, payload)
			Measure(b, callers, func(i int) error {
				_, err := all[i%journals].Do(b.Context(), Command{ID: strconv.Itoa(i), Account: "a", Add: 1, Pad: pad})
				return err
			})
		})
	}
}

// Measure calls do b.N times from a number of concurrent callers. It reports the rate
// per second and the 50th and 99th percentiles of the duration.
func Measure(b *testing.B, callers int, do func(i int) error) {
	b.Helper()
	b.ReportAllocs()
	var next atomic.Int64
	var mu sync.Mutex
	var work sync.WaitGroup
	var all []time.Duration
	b.ResetTimer()
	for range callers {
		work.Go(func() {
			var took []time.Duration
			for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
				begun := time.Now()
				if err := do(i); err != nil {
					b.Error(err)
					break
				}
				took = append(took, time.Since(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	work.Wait()
	b.StopTimer()
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per-s")
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	}
}
