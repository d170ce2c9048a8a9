package vm_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/internal/testbed"
)

// scene is an environment in which delegates are killed and started again.
type scene struct {
	*testing.T
	orders
	provider vm.Provider
	// pattern of the machines' directories
	folders string
	// seen has all machines that were on record, by id.
	seen map[string]record

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
}

// newScene returns a scene with machines that are processes.
func newScene(t *testing.T, uses int) *scene {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	o := orders{Agent: agentProgram(t), Dir: t.TempDir(), Uses: uses}
	return openScene(t, &o, filepath.Join(o.Dir, "machines", "*", "*"))
}

func openScene(t *testing.T, o *orders, folders string) *scene {
	t.Helper()
	o.Marker = fmt.Sprintf("vm-crash-%d", rand.Uint64())
	testbed.Keep(t, o.Dir)
	provider, err := o.open()
	require.NoError(t, err)
	s := &scene{T: t, orders: *o, provider: provider, folders: folders, seen: map[string]record{}}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		for _, id := range s.machines() {
			require.NoError(t, s.provider.Destroy(context.WithoutCancel(t.Context()), id))
		}
	})
	return s
}

// launch starts a delegate.
func (s *scene) launch(fault string, n, rounds int) {
	s.Helper()
	o := s.orders
	o.Fault, o.N, o.Rounds = fault, n, rounds
	text, err := json.Marshal(o)
	require.NoError(s, err)
	self, err := os.Executable()
	require.NoError(s, err)
	s.cmd = exec.Command(self) //nolint:noctx // it is killed by hand
	s.cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	s.cmd.Stderr = os.Stderr
	s.stdin, err = s.cmd.StdinPipe()
	require.NoError(s, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(s, err)
	s.stdout = bufio.NewScanner(out)
	require.NoError(s, s.cmd.Start())
}

// start starts a delegate and waits until it has cleaned up and its pool is full. It returns
// false if the delegate had orders to die before that, and did.
func (s *scene) start(fault string, n, rounds int) bool {
	s.Helper()
	s.launch(fault, n, rounds)
	defer s.bound("full")()
	for _, line := range []string{"recovered", "full"} {
		if !s.stdout.Scan() {
			s.wait()
			require.NotEmpty(s, fault, "the delegate ended before it was %s", line)
			return false
		}
		require.Equal(s, line, s.stdout.Text())
		if line == "recovered" {
			s.requireNothingClaimed()
		}
	}
	least, _, _ := s.size()
	s.requireFull(least)
	return true
}

// bound kills a delegate that exceeds the limit, and fails the test.
func (s *scene) bound(until string) (stop func()) {
	const patience = 3 * time.Minute
	cmd := s.cmd
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	return func() {
		s.Helper()
		require.True(s, timer.Stop(), "the delegate was not %s within %v", until, patience)
	}
}

// requireNothingClaimed requires that nothing of interrupted stages remains.
func (s *scene) requireNothingClaimed() {
	s.Helper()
	require.Empty(s, testbed.ProcessesWith("environ", "MARKER="+s.Marker+"\x00"), "steps still run")
	left, err := filepath.Glob(filepath.Join(s.Dir, "ledger", "*.ledger"))
	require.NoError(s, err)
	for _, path := range left {
		info, err := os.Stat(path)
		// a recent record may belong to a creation that still runs
		require.True(s, err != nil || time.Since(info.ModTime()) < time.Minute, "on record: %s", path)
	}
}

// requireFull requires at least the given number of machines. All of them must be warm, on
// record and free of stages.
func (s *scene) requireFull(atLeast int) {
	s.Helper()
	_, most, _ := s.size()
	var known []string
	for _, r := range s.records() {
		require.Equal(s, "warm", r.Phase, r.ID)
		require.Empty(s, r.Reserved, r.ID)
		known = append(known, r.ID)
	}
	machines := s.machines()
	require.ElementsMatch(s, known, machines, "records and machines")
	require.GreaterOrEqual(s, len(machines), atLeast)
	require.LessOrEqual(s, len(machines), most)
	s.requireNoStages()
	for _, id := range machines {
		alive, err := s.provider.Alive(s.Context(), id)
		require.NoError(s, err)
		require.True(s, alive, id)
	}
}

// requireNoStages requires that warm machines have no files and no processes of stages.
func (s *scene) requireNoStages() {
	s.Helper()
	if s.QEMU != nil {
		s.requireNoStagesInGuests()
		return
	}
	work, err := filepath.Glob(filepath.Join(s.folders, "dlite-*"))
	require.NoError(s, err)
	require.Empty(s, work, "stages on warm machines")
}

// requireNothing requires that no machine and no record of one remains.
func (s *scene) requireNothing() {
	s.Helper()
	require.Empty(s, s.machines(), "folders of machines")
	left, err := filepath.Glob(filepath.Join(s.Dir, "pool", "dlite-*"))
	require.NoError(s, err)
	require.Empty(s, left, "records")
	for id, m := range s.seen {
		require.Empty(s, testbed.ProcessesWith("cmdline", id), "processes of a machine")
		s.requirePortUnused(&m)
	}
}

// requirePortUnused requires that a machine's port is free, or that another process has it.
func (s *scene) requirePortUnused(m *record) {
	s.Helper()
	cfg, err := (&agent.Boot{CA: m.CA, Cert: m.Cert, Key: m.Key}).ClientTLS("")
	require.NoError(s, err)
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", m.Address)
	if err == nil {
		_ = conn.Close()
	}
	require.Error(s, err, "machine %s still answers at %s", m.ID, m.Address)
	require.NoError(s, ctx.Err(), "%s still takes connections", m.Address)
}

// records reads the records of the pool, and adds them to seen.
func (s *scene) records() []record {
	s.Helper()
	at := site{cfg: vm.PoolConfig{Dir: filepath.Join(s.Dir, "pool")}}
	all := at.records(s)
	for _, r := range all {
		if r.Address != "" {
			s.seen[r.ID] = r
		}
	}
	return all
}

// machines returns the ids of all machines that have a directory. The name of a directory may
// have the owner before the id.
func (s *scene) machines() (ids []string) {
	folders, _ := filepath.Glob(s.folders)
	for _, folder := range folders {
		name := filepath.Base(folder)
		ids = append(ids, name[strings.LastIndexByte(name, '.')+1:])
	}
	return ids
}

func (s *scene) work() {
	_, _ = io.WriteString(s.stdin, "\n") // it may have ended already
	s.stdout.Scan()
}

func (s *scene) kill() {
	_ = s.cmd.Process.Kill()
	s.wait()
}

func (s *scene) wait() {
	_ = s.cmd.Wait() // killed is an error
	s.cmd = nil
	s.records()
}

// run starts a delegate that cleans up, works for some rounds and ends. It returns how often
// the delegate passed each fault point.
func (s *scene) run(rounds int) (points map[string]int) {
	s.Helper()
	s.start("", 0, rounds)
	defer s.bound("finished with its stages")()
	s.work()
	require.True(s, s.stdout.Scan(), "the delegate did not end well")
	require.NoError(s, json.Unmarshal(s.stdout.Bytes(), &points), s.stdout.Text())
	s.wait()
	return points
}

// finish runs a delegate that cleans up and works for a while, and a last one that ends
// everything.
func (s *scene) finish() {
	s.Helper()
	s.run(1)
	s.requireNothingClaimed()
	s.requireFull(0) // a machine that was being created at the end is not kept
	s.Discard = true
	s.run(1)
	s.requireNothingClaimed()
	s.requireNothing()
}

// killAtFaultPoints kills a delegate at each passing of each fault point, up to a maximum per
// point.
func (s *scene) killAtFaultPoints(times int) {
	s.Helper()
	begun := time.Now()
	points, kills := s.run(3), 0
	require.Greater(s, len(points), 20, "%v", points)
	for _, point := range slices.Sorted(maps.Keys(points)) {
		for n := 1; n <= min(times, points[point]); n++ {
			if s.start(point, n, 0) {
				stop := s.bound(fmt.Sprintf("at %q for the time number %d", point, n))
				s.work()
				for s.stdout.Scan() {
				}
				stop()
				s.wait()
			}
			kills++
		}
	}
	s.finish()
	s.Logf("killed %d times at %d fault points in %v, with %d machines; nothing was left",
		kills, len(points), time.Since(begun).Round(time.Second), len(s.seen))
}

// killAtInstants kills delegates at random times after they have started to work. Every
// second one is killed after it has started to clean up.
func (s *scene) killAtInstants(times int, within time.Duration) {
	s.Helper()
	begun := time.Now()
	for i := range times {
		if i%2 == 0 {
			s.start("", 0, 0)
			s.work()
		} else {
			s.launch("", 0, 0)
			_, _ = io.WriteString(s.stdin, "\n")
		}
		<-time.After(rand.N(within))
		s.kill()
	}
	s.finish()
	s.Logf("killed %d times in %v, with %d machines; nothing was left", times, time.Since(begun).Round(time.Second), len(s.seen))
}

// Rules T2 and D6: a delegate is killed at each fault point. After the next start no machine,
// no record and no step remains, and the pool is full again.
func TestAKillAtEveryFaultPointLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, uses := range map[string]int{"destroyed": 0, "used again": 3} {
		t.Run("machines are "+name, func(t *testing.T) {
			t.Parallel()
			newScene(t, uses).killAtFaultPoints(3)
		})
	}
}

// Rules T2 and D6: the same at random times.
func TestKillsAtRandomInstantsLeaveNothing(t *testing.T) {
	t.Parallel()
	newScene(t, 2).killAtInstants(100, 400*time.Millisecond)
}
