package vm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// sh returns a step that runs a script.
func sh(id, script string) stage.Step {
	return stage.Step{ID: id, Environment: map[string]string{}, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}}
}

// memoryLedger is a transaction's ledger in memory.
type memoryLedger struct {
	added func(rs []driver.Resource) error // nil, or called with all records after each new one

	mu sync.Mutex
	rs []driver.Resource
}

func (l *memoryLedger) Record(_ context.Context, r driver.Resource) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rs = append(l.rs, r)
	if l.added != nil {
		return l.added(slices.Clone(l.rs))
	}
	return nil
}

func (l *memoryLedger) all() []driver.Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.rs)
}

// stageOf is a transaction whose init has run.
type stageOf struct {
	testing.TB
	d   *vm.Driver
	env *driver.Environment
	l   *memoryLedger
}

// begin starts a transaction, which ends with tb.
func begin(tb testing.TB, d *vm.Driver) *stageOf {
	tb.Helper()
	s := &stageOf{TB: tb, d: d, env: &driver.Environment{ID: tb.Name()}, l: &memoryLedger{}}
	tb.Cleanup(func() { s.cleanup() })
	require.NoError(tb, d.Init(tb.Context(), s.env, s.l))
	return s
}

func (s *stageOf) cleanup() {
	s.Helper()
	left, err := s.d.Cleanup(context.WithoutCancel(s.Context()), s.l.all())
	assert.NoError(s, err)
	assert.Empty(s, left)
}

func (s *stageOf) execute(step stage.Step, out io.Writer) (*driver.Result, error) {
	return s.d.Execute(s.Context(), s.env, &driver.Step{Step: step}, out, s.l)
}

func (s *stageOf) machine() string {
	return s.l.all()[0].ID
}

func newDriver(tb testing.TB, pools []*vm.Pool) *vm.Driver {
	tb.Helper()
	d, err := vm.New(pools)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, d.Close()) })
	return d
}

// lines is a writer that passes on the lines written to it.
type lines struct {
	ch  chan string
	buf bytes.Buffer
}

func newLines() *lines { return &lines{ch: make(chan string, 1000)} }

func (l *lines) Write(p []byte) (int, error) {
	l.buf.Write(p)
	for {
		line, rest, ok := strings.Cut(l.buf.String(), "\n")
		if !ok {
			return len(p), nil
		}
		l.buf.Reset()
		l.buf.WriteString(rest)
		l.ch <- line
	}
}

func (l *lines) expect(tb testing.TB, line string) {
	tb.Helper()
	select {
	case got := <-l.ch:
		require.Equal(tb, line, got)
	case <-time.After(time.Minute):
		require.FailNow(tb, "nothing came", "wanted %q", line)
	}
}

// ending is the result of a step.
type ending struct {
	res *driver.Result
	err error
	at  time.Time
}

func (s *stageOf) start(step stage.Step, out io.Writer) <-chan ending {
	done := make(chan ending, 1)
	go func() {
		res, err := s.execute(step, out)
		done <- ending{res, err, time.Now()}
	}()
	return done
}

// quickly is the longest time from the death of a machine to the failure of its step (rule D6).
const quickly = 2 * time.Second

// Rule D6: if a machine dies, its step fails within 2 s with an error that says so.
func TestADeadMachineFailsItsStep(t *testing.T) {
	t.Parallel()
	program := agentProgram(t)
	for name, silent := range map[string]bool{
		"its connections are closed": false,
		// As in a cloud: connections stay open without an answer.
		"without a reset": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteBehind(t, program, vm.PoolConfig{Min: 1, Max: 2})
			d := newDriver(t, []*vm.Pool{s.pool})
			fastest := time.Hour
			for try := 0; try < 3 && fastest > quickly; try++ { // the host may be busy
				fastest = min(fastest, dies(begin(t, d), s, silent))
			}
			require.Less(t, fastest, quickly)
			t.Logf("the step failed %v after its machine", fastest.Round(time.Millisecond))
		})
	}
}

// dies destroys the machine of a step, and returns the time until the step failed.
func dies(st *stageOf, s *site, silent bool) time.Duration {
	st.Helper()
	out := newLines()
	done := st.start(sh("step", "echo begun; sleep 600"), out)
	out.expect(st, "begun")
	if silent {
		s.network.cut(false)
		defer s.network.mend()
	}
	at := time.Now()
	require.NoError(st, s.provider.Destroy(st.Context(), st.machine()))
	end := <-done
	require.ErrorIs(st, end.err, agent.ErrGone)
	require.ErrorContains(st, end.err, st.machine())
	require.ErrorContains(st, end.err, "the machine does not run")
	_, err := st.execute(sh("next", "true"), io.Discard)
	require.ErrorIs(st, err, agent.ErrGone)
	return end.at.Sub(at)
}

// Rule D6: a broken connection does not affect a step while its machine runs.
func TestABrokenConnectionDoesNotFailItsStep(t *testing.T) {
	t.Parallel()
	s := newSiteBehind(t, agentProgram(t), vm.PoolConfig{Min: 1, Max: 1})
	st := begin(t, newDriver(t, []*vm.Pool{s.pool}))
	out := newLines()
	done := st.start(sh("step", "for i in $(seq 1 300); do echo $i; sleep 0.01; done; exit 4"), out)
	for i := range 300 {
		if i%60 == 30 {
			s.network.cut(true)
		}
		out.expect(t, fmt.Sprint(i+1))
	}
	end := <-done
	require.NoError(t, end.err)
	require.Equal(t, 4, end.res.ExitCode)
}

// Rule D6: an agent that stays unreachable counts as dead after a while.
func TestAnUnreachableAgentFailsItsStep(t *testing.T) {
	t.Parallel()
	s := newSiteBehind(t, agentProgram(t), vm.PoolConfig{Min: 1, Max: 2})
	st := begin(t, newDriver(t, []*vm.Pool{s.pool}).SetUnreachable(500*time.Millisecond))
	out := newLines()
	done := st.start(sh("step", "echo begun; sleep 600"), out)
	out.expect(t, "begun")
	s.network.cut(false)
	end := <-done
	require.ErrorIs(t, end.err, agent.ErrGone)
	require.ErrorContains(t, end.err, "its agent has not answered")
	s.network.mend()
}

// Rule T5: after a kill of the delegate, the next one follows a step and receives all of its
// output.
func TestAStepContinuesAfterAKillOfTheDelegate(t *testing.T) {
	t.Parallel()
	o := orders{
		Dir: t.TempDir(), Agent: agentProgram(t),
		Script: "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last; echo A=1 >> $DRONE_OUTPUT; exit 3",
	}
	testbed.Keep(t, o.Dir)
	text, err := json.Marshal(o)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env, cmd.Stderr = append(os.Environ(), victimEnv+"="+string(text)), os.Stderr
	out := newLines()
	cmd.Stdout = out
	require.NoError(t, cmd.Start())
	out.expect(t, "first")
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait() // killed is an error

	s := openSite(t, o.Dir, o.Agent, vm.PoolConfig{Max: 4})
	d := newDriver(t, []*vm.Pool{s.pool})
	var b begun
	text, err = os.ReadFile(o.begunPath())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &b))
	l := &memoryLedger{rs: b.Records}
	st := &stageOf{TB: t, d: d, env: b.Env, l: l}
	t.Cleanup(st.cleanup)
	require.NoError(t, d.Init(t.Context(), b.Env, l), "a second init finds the machine of the first one")

	_, err = d.Reattach(t.Context(), b.Env, &b.Step, io.Discard, l, nil)
	require.ErrorIs(t, err, driver.ErrNotBegun)
	never := b.Records[len(b.Records)-1]
	never.ID = "step-never"
	_, err = d.Reattach(t.Context(), b.Env, &b.Step, io.Discard, l, []driver.Resource{never})
	require.ErrorIs(t, err, driver.ErrNotBegun)

	again, done := newLines(), make(chan ending, 1)
	go func() {
		res, err := d.Reattach(t.Context(), b.Env, &b.Step, again, l, b.Records)
		done <- ending{res: res, err: err}
	}()
	again.expect(t, "first")
	_, err = st.execute(sh("other", "touch go"), io.Discard)
	require.NoError(t, err)
	again.expect(t, "last")
	end := <-done
	require.NoError(t, end.err)
	require.Equal(t, 3, end.res.ExitCode)
	require.Equal(t, map[string]string{"A": "1"}, end.res.Outputs)

	st.cleanup()
	_, err = d.Reattach(t.Context(), b.Env, &b.Step, io.Discard, l, b.Records)
	require.ErrorIs(t, err, driver.ErrLost)
}

// Rule D6: an init waits for a machine, says so, and gets one when another transaction ends.
func TestAnInitWaitsForAMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t, agentProgram(t), vm.PoolConfig{Max: 1})
	d := newDriver(t, []*vm.Pool{s.pool})
	first := begin(t, d)
	log := newLines()
	second := &stageOf{TB: t, d: d, env: &driver.Environment{ID: "second", Log: log}, l: &memoryLedger{}}
	t.Cleanup(second.cleanup)
	done := make(chan error, 1)
	go func() { done <- d.Init(t.Context(), second.env, second.l) }()
	log.expect(t, "Waiting for a machine of pool linux: all 1 are in use or being created.")
	first.cleanup()
	require.NoError(t, <-done)
	require.NotEqual(t, first.machine(), second.machine())
	// The id is known, but not the key of the machine.
	require.Contains(t, string(second.env.State), second.machine())
	require.NotContains(t, string(second.env.State), "KEY")
}

// Rule D6: a transaction chooses its pool, and the error of an unknown pool lists the pools.
func TestATransactionChoosesItsPool(t *testing.T) {
	t.Parallel()
	program := agentProgram(t)
	linux, big := newSite(t, program, vm.PoolConfig{Max: 1}), newSiteNamed(t, "big", program, vm.PoolConfig{Max: 1})
	d := newDriver(t, []*vm.Pool{linux.pool, big.pool})
	for pool, where := range map[string]*site{"": linux, "linux": linux, "big": big} {
		env := &driver.Environment{ID: "of " + pool, Network: stage.Network{Options: map[string]string{stage.PoolOption: pool}}}
		st := &stageOf{TB: t, d: d, env: env, l: &memoryLedger{}}
		require.NoError(t, d.Init(t.Context(), env, st.l))
		require.Equal(t, 1, where.pool.Stats().Claimed, pool)
		st.cleanup()
	}
	env := &driver.Environment{ID: "x", Network: stage.Network{Options: map[string]string{stage.PoolOption: "windows"}}}
	require.ErrorContains(t, d.Init(t.Context(), env, &memoryLedger{}), `unknown pool "windows": the pools are ["big" "linux"]`)
	_, err := vm.New(nil)
	require.Error(t, err)
	_, err = vm.New([]*vm.Pool{linux.pool, linux.pool})
	require.Error(t, err)
}

// Rule T3: an init that the agent refuses fails with the agent's text, and its machine is not
// reused.
func TestAFailedInitEndsItsMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t, agentProgram(t), vm.PoolConfig{Min: 1, Max: 2, MaxUses: 10})
	d := newDriver(t, []*vm.Pool{s.pool})
	env := &driver.Environment{ID: "bad", Files: []*stage.File{{Path: "../../outside", Data: "x"}}}
	l := &memoryLedger{}
	require.ErrorContains(t, d.Init(t.Context(), env, l), "../../outside")
	require.Empty(t, env.State)
	require.Len(t, l.all(), 1)
	left, err := d.Cleanup(t.Context(), l.all())
	require.NoError(t, err)
	require.Empty(t, left)
}

// Rule D6: a hundred consecutive transactions leave nothing behind, including memory.
func TestAHundredClaimsInARowLeaveNothing(t *testing.T) {
	s := newSite(t, agentProgram(t), vm.PoolConfig{Min: 2, Max: 4})
	claimsInARow(t, s.pool, 100, func() used { return usage(t, s.cfg.Dir, filepath.Join(s.machines(), "*", "*")) })
}

// claimsInARow runs n/10 transactions as a warm-up and then n more, which must not increase the
// usage.
func claimsInARow(t *testing.T, p *vm.Pool, n int, usage func() used) {
	t.Helper()
	d := newDriver(t, []*vm.Pool{p})
	run := func(times int) {
		for i := range times {
			st := &stageOf{TB: t, d: d, env: &driver.Environment{ID: fmt.Sprint("stage ", i)}, l: &memoryLedger{}}
			require.NoError(t, d.Init(t.Context(), st.env, st.l))
			res, err := st.execute(sh("step", "true"), io.Discard)
			require.NoError(t, err)
			require.Zero(t, res.ExitCode)
			st.cleanup()
		}
	}
	run(max(2, n/10))
	before := usage()
	run(n)
	// Connections to destroyed machines need a moment to close.
	require.Eventually(t, func() bool {
		after := usage()
		return after.goroutines <= before.goroutines+6 && after.files <= before.files+4 && after.records <= 4 &&
			after.machines <= 4 && after.processes <= 4
	}, 30*time.Second, 50*time.Millisecond, "before %+v, after %+v", before, usage())
	t.Logf("before %+v, after %+v", before, usage())
}

type used struct{ goroutines, files, records, machines, processes int }

// usage counts the resources of a pool with that state directory, and of its machines. The
// machines' directories match the pattern, and their processes name a directory next to the
// pool's.
func usage(t *testing.T, pool, pattern string) used {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	records, err := filepath.Glob(filepath.Join(pool, "dlite-*"))
	require.NoError(t, err)
	folders, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return used{runtime.NumGoroutine(), len(files), len(records), len(folders), len(testbed.ProcessesWith("cmdline", filepath.Dir(pool)+"/"))}
}
