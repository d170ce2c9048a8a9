package vm_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/vm"
)

// BenchmarkClaimToFirstStep measures the time from the claim of a warm machine to the end of
// a first step that does nothing (rule D6), and for comparison a second step on the same
// machine. Machines are reused, so that their creation is not measured.
func BenchmarkClaimToFirstStep(b *testing.B) {
	s := newSite(b, agentProgram(b), vm.PoolConfig{Min: 1, Max: 2, MaxUses: 1 << 20})
	d := newDriver(b, []*vm.Pool{s.pool})
	var first, second []time.Duration
	b.ReportAllocs()
	for i := range b.N {
		b.StopTimer()
		for s.pool.Stats().Warm == 0 {
			<-time.After(time.Millisecond)
		}
		st := &stageOf{TB: b, d: d, env: &driver.Environment{ID: fmt.Sprint("stage ", i)}, l: &memoryLedger{}}
		b.StartTimer()
		begin := time.Now()
		require.NoError(b, d.Init(context.Background(), st.env, st.l))
		_, err := st.execute(sh("step", "true"), io.Discard)
		require.NoError(b, err)
		first = append(first, time.Since(begin))
		b.StopTimer()
		begin = time.Now()
		_, err = st.execute(sh("step", "true"), io.Discard)
		require.NoError(b, err)
		second = append(second, time.Since(begin))
		st.cleanup()
	}
	b.ReportMetric(median(first), "first-p50-ms")
	b.ReportMetric(median(second), "second-p50-ms")
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Millisecond)
}
