package vm

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// BenchmarkMemoryPerWarmMachine measures the memory of a pool for each of a thousand
// machines, with certificates.
func BenchmarkMemoryPerWarmMachine(b *testing.B) {
	const machines = 1000
	for range b.N {
		before := heap()
		fake := newFake(1)
		p, err := NewPool(fake, PoolConfig{Name: "bench", Dir: b.TempDir(), Min: machines, Max: machines, Parallel: 64})
		if err != nil {
			b.Fatal(err)
		}
		p.probe = fake.probe
		p.dial = nil
		if err := p.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		for p.Stats().Warm < machines {
			<-time.After(10 * time.Millisecond)
		}
		b.ReportMetric(float64(heap()-before)/machines, "bytes/machine")
		if err := p.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
