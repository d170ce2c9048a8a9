package vm_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
)

// BenchmarkClaimToFirstStepOnQEMU is BenchmarkClaimToFirstStep on two warm, emulated virtual
// machines (rule D6). Init and step are the two parts of "first". For comparison, it measures
// a bare HTTPS request to the agent of the same guests, on an open and on a new connection.
func BenchmarkClaimToFirstStepOnQEMU(b *testing.B) {
	b.Run("connected", func(b *testing.B) { claimOnQEMU(b, true) })
	b.Run("connected late", func(b *testing.B) { claimOnQEMU(b, false) })
}

// claimOnQEMU measures claims of a pool that does or does not connect to its warm machines in
// advance.
func claimOnQEMU(b *testing.B, connected bool) {
	b.Helper()
	const machines = 2
	guest, dir := testbed.VM(b), b.TempDir()
	testbed.Keep(b, dir)
	provider, err := qemu.New(qemu.Config{
		StateDir: filepath.Join(dir, "qemu"), Binary: guest.QEMU, Accel: "tcg,tb-size=64", CPU: "qemu64", MemoryMB: 192,
		Kernel: guest.Kernel, Initrd: guest.Initrd, Append: guest.Append,
	})
	require.NoError(b, err)
	pool, err := vm.NewPool(provider, vm.PoolConfig{
		Name: "linux", Dir: filepath.Join(dir, "pool"), Min: machines, Max: machines, MaxUses: 1 << 20, HealthTimeout: 30 * time.Second,
	})
	require.NoError(b, err)
	if !connected {
		pool.ConnectLate()
	}
	require.NoError(b, pool.Start(context.Background()))
	b.Cleanup(func() { require.NoError(b, pool.Close(context.Background())) })
	awaitWarm := func() {
		for pool.Stats().Warm < machines || connected && pool.Connected() < machines {
			<-time.After(time.Millisecond)
		}
	}
	d := newDriver(b, []*vm.Pool{pool})
	awaitWarm()
	at := &site{cfg: vm.PoolConfig{Dir: filepath.Join(dir, "pool")}}
	took := map[string][]time.Duration{}
	timed := func(name string, f func() error) {
		begin := time.Now()
		require.NoError(b, f())
		took[name] = append(took[name], time.Since(begin))
	}
	for i := range b.N {
		b.StopTimer()
		awaitWarm()
		for _, m := range at.records(b)[:1] {
			bareRequests(b, &m, timed)
		}
		st := &stageOf{TB: b, d: d, env: &driver.Environment{ID: fmt.Sprint("stage ", i)}, l: &memoryLedger{}}
		step := func() error { _, err := st.execute(sh("step", "true"), io.Discard); return err }
		b.StartTimer()
		timed("first", func() error {
			timed("init", func() error { return d.Init(context.Background(), st.env, st.l) })
			timed("step", step)
			return nil
		})
		b.StopTimer()
		timed("second", step)
		st.cleanup()
	}
	for name, all := range took {
		b.ReportMetric(median(all), name+"-p50-ms")
	}
	b.ReportMetric(0, "ns/op") // the sum has no meaning, only the medians have
}

// bareRequests measures a request on a new connection and one on the open connection.
func bareRequests(b *testing.B, m *record, timed func(string, func() error)) {
	b.Helper()
	cfg, err := (&agent.Boot{CA: m.CA, Cert: m.Cert, Key: m.Key}).ClientTLS("")
	require.NoError(b, err)
	t := agent.Transport(cfg)
	defer t.CloseIdleConnections()
	c := agent.NewClient("https://"+m.Address, t)
	ask := func() error { _, err := c.Health(context.Background()); return err }
	timed("bare-new", ask)
	timed("bare", ask)
}
