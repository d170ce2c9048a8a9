//go:build unix

package local_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/internal/testbed"
)

// The two parts of a comparison run in turns, so that both see the same machine. The metric "ratio" is
// the driver's time divided by the time of the reference.

// fileLedger makes records as durable as the ledger of driver/transaction: a record that is not
// volatile is on the disk before Record returns.
type fileLedger struct {
	mu   sync.Mutex
	file *os.File
	all  []driver.Resource
}

func newFileLedger(b *testing.B, dir string) *fileLedger {
	b.Helper()
	f, err := os.CreateTemp(dir, "*.ledger")
	require.NoError(b, err)
	return &fileLedger{file: f}
}

func (l *fileLedger) Record(_ context.Context, r driver.Resource) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return err
	}
	l.all = append(l.all, r)
	if r.Volatile {
		return nil
	}
	return l.file.Sync()
}

func (l *fileLedger) resources() []driver.Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	byID := map[string]int{}
	var list []driver.Resource
	for _, r := range l.all {
		if i, ok := byID[r.Kind+r.ID]; ok {
			list[i] = r
			continue
		}
		byID[r.Kind+r.ID] = len(list)
		list = append(list, r)
	}
	return list
}

// stageOf runs a whole stage: init, steps, cleanup.
func stageOf(b *testing.B, d *local.Driver, dir string, steps ...*driver.Step) {
	b.Helper()
	l := newFileLedger(b, dir)
	defer func() {
		_ = l.file.Close()
		_ = os.Remove(l.file.Name())
	}()
	env := &driver.Environment{ID: randomName()}
	require.NoError(b, d.Init(b.Context(), env, l))
	for _, step := range steps {
		res, err := d.Execute(b.Context(), env, step, io.Discard, l)
		require.NoError(b, err)
		require.Zero(b, res.ExitCode)
		res.End()
	}
	left, err := d.Cleanup(b.Context(), l.resources())
	require.NoError(b, err)
	require.Empty(b, left)
}

func randomName() string {
	name := make([]byte, 6)
	_, _ = rand.Read(name)
	return "bench-" + hex.EncodeToString(name)
}

func benchDriver(b *testing.B, opts ...option) (*local.Driver, string) {
	b.Helper()
	dir := b.TempDir()
	d, err := newDriver(append([]option{withWorkDir(dir)}, opts...)...)
	require.NoError(b, err)
	b.Cleanup(func() { _ = d.Close() })
	return d, dir
}

// inTurns measures all functions in turns. It reports the medians and their ratios to the reference.
func inTurns(b *testing.B, ours, theirs func(), more ...contender) {
	b.Helper()
	b.ReportAllocs()
	all := append([]contender{{"ours", ours}, {"theirs", theirs}}, more...)
	times := make([][]time.Duration, len(all))
	for _, c := range all {
		c.run() // creates connections and directories
	}
	for b.Loop() {
		for i, c := range all {
			start := time.Now()
			c.run()
			times[i] = append(times[i], time.Since(start))
		}
	}
	median := func(i int) float64 {
		slices.Sort(times[i])
		return float64(times[i][len(times[i])/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(0)/median(1), "ratio")
	for i, c := range all {
		b.ReportMetric(median(i), c.name+"-ms")
		if i > 1 {
			b.ReportMetric(median(i)/median(1), c.name+"-ratio")
		}
	}
}

type contender struct {
	name string
	run  func()
}

func command(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.CommandContext(b.Context(), name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// A stage of container steps, compared with the shortest sequence of docker commands that does the
// same.
func BenchmarkContainerStageAgainstDockerCommands(b *testing.B) {
	engine := testbed.Docker(b)
	if _, err := exec.LookPath("docker"); err != nil {
		testbed.Unavailable(b, "docker", "there is no docker command")
	}
	for _, steps := range []int{1, 10} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			d, dir := benchDriver(b)
			var list []*driver.Step
			for i := range steps {
				list = append(list, &driver.Step{Step: in(engine.Image, sh(fmt.Sprint("step-", i), "echo hello"))})
			}
			inTurns(b,
				func() { stageOf(b, d, dir, list...) },
				func() {
					name := randomName()
					workspace := filepath.Join(dir, name)
					require.NoError(b, os.Mkdir(workspace, 0o700))
					command(b, "docker", "network", "create", name)
					for range steps {
						command(b, "docker", "run", "--rm", "--network", name, "-v", workspace+":/workspace", "-w", "/workspace",
							engine.Image, "sh", "-c", "echo hello")
					}
					command(b, "docker", "network", "rm", name)
					require.NoError(b, os.RemoveAll(workspace))
				})
		})
	}
}

// A host step, compared with a bare start of the same process. The short step shows the cost of a
// step, the long step shows what that cost means for a typical step. "synced" is the bare process
// after one synced record.
func BenchmarkHostStepAgainstForkAndExec(b *testing.B) {
	const nothing, something = "true", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo $i"
	for _, one := range []struct {
		name, script string
		opts         []option
	}{
		{"nothing", nothing, nil}, {"something", something, nil},
		{"nothing-separated", nothing, []option{separated()}}, {"something-separated", something, []option{separated()}},
	} {
		b.Run(one.name, func(b *testing.B) {
			script := one.script
			d, dir := benchDriver(b, one.opts...)
			l := newFileLedger(b, dir)
			env := &driver.Environment{ID: randomName()}
			require.NoError(b, d.Init(b.Context(), env, l))
			step := &driver.Step{Step: sh("step", script)}
			inTurns(b,
				func() {
					res, err := d.Execute(b.Context(), env, step, io.Discard, l)
					require.NoError(b, err)
					require.Zero(b, res.ExitCode)
					res.End()
				},
				func() { command(b, "sh", "-c", script) },
				contender{"synced", func() {
					require.NoError(b, l.Record(b.Context(), driver.Resource{Kind: "floor", ID: "same", Labels: env.Labels}))
					command(b, "sh", "-c", script)
				}})
			l.all = slices.DeleteFunc(l.all, func(r driver.Resource) bool { return r.Kind == "floor" })
			_, err := d.Cleanup(b.Context(), l.resources())
			require.NoError(b, err)
			require.NoError(b, l.file.Close())
		})
	}
}

// Fifty stages at once: how many end per second, and how much memory the delegate needs. The engine's
// address pool contains fifty networks.
func BenchmarkFiftyStagesAtOnce(b *testing.B) {
	const stages = 50
	run := func(b *testing.B, d *local.Driver, dir string, step *driver.Step) {
		b.Helper()
		var peak uint64
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for b.Loop() {
			var wg sync.WaitGroup
			for range stages {
				wg.Go(func() { stageOf(b, d, dir, step) })
			}
			done := make(chan struct{})
			go func() {
				wg.Wait()
				close(done)
			}()
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				case <-ticker.C:
					var now runtime.MemStats
					runtime.ReadMemStats(&now)
					peak = max(peak, now.HeapInuse+now.StackInuse)
				}
			}
		}
		b.ReportMetric(float64(stages*b.N)/b.Elapsed().Seconds(), "stages/s")
		b.ReportMetric(float64(peak-min(peak, before.HeapInuse+before.StackInuse))/(1<<20), "MiB-more")
	}
	b.Run("host", func(b *testing.B) {
		d, dir := benchDriver(b)
		run(b, d, dir, &driver.Step{Step: sh("step", "echo hello")})
	})
	b.Run("container", func(b *testing.B) {
		engine := testbed.PrivateEngine(b, "--default-address-pool", "base=10.200.0.0/16,size=24")
		d, dir := benchDriver(b, withDockerHost(engine.Host))
		run(b, d, dir, &driver.Step{Step: in(engine.Image, sh("step", "echo hello"))})
	})
}
