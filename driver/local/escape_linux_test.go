package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"

	"github.com/delegate-io/dlite/internal/testbed"
)

// escape returns a script whose daemon forks twice, leaves its group and session, clears its
// environment and closes its output. The command line of the daemon contains the tag.
func escape(r *rig, then string) (script, tag string) {
	tag = fmt.Sprintf("600.%09d", time.Now().UnixNano()%1e9)
	return fmt.Sprintf(`(setsid env -i sh -c '(trap "" TERM HUP INT; echo $$ > %[1]s/escaped; sleep %[2]s; sleep %[2]s) &' </dev/null >/dev/null 2>&1 &)
		while [ ! -s %[1]s/escaped ]; do sleep 0.01; done; echo escaped; %[3]s`, workspace(r), tag, then), tag
}

// requireGone searches all command lines for the tag, and checks that the control groups of all steps
// are gone.
func requireGone(t *testing.T, r *rig, tag string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range lines {
		b, _ := os.ReadFile(file)
		require.NotContains(t, string(b), tag, "a process is left: %s", file)
	}
	for _, path := range cgroupsOf(t, r) {
		require.NoDirExists(t, path)
	}
}

// cgroupsOf returns the control groups in the records. It ends the test on a machine without control
// groups.
func cgroupsOf(t *testing.T, r *rig) []string {
	t.Helper()
	var paths []string
	for _, p := range r.ledger.ofKind("process") {
		var data struct{ Cgroup string }
		require.NoError(t, json.Unmarshal(p.Data, &data))
		if data.Cgroup == "" {
			testbed.Unavailable(t, "control groups", "none may be made here")
		}
		paths = append(paths, data.Cgroup)
	}
	require.NotEmpty(t, paths)
	return paths
}

// Rule D4: all processes of a step end with it, even if they hide.
func TestNothingEscapesTheEndOfItsStep(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	script, tag := escape(r, "exit 7")
	res, out := r.run(sh("step", script))
	require.Equal(t, 7, res.ExitCode)
	require.Equal(t, "escaped\n", out)
	requireGone(t, r, tag)
}

// Rule T7.
func TestNothingEscapesATimeOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, withGrace(100*time.Millisecond)).init()
	script, tag := escape(r, "sleep 600")
	step := sh("step", script)
	step.Timeout = 2
	out, err := r.fail(step)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "escaped\n", out)
	requireGone(t, r, tag)
}

// Rule T7.
func TestNothingEscapesAnAbort(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	script, tag := escape(r, "sleep 600")
	out, done := newBuffer(), make(chan error, 1)
	go func() {
		_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: sh("step", script)}, out, r.ledger)
		done <- err
	}()
	out.waitFor(t, "escaped")
	cancel()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	requireGone(t, r, tag)
}

// Rule T2: the records of a dead delegate are enough.
func TestNothingEscapesTheCleanupOfAnotherDriver(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	for i, then := range []string{"sleep 600", "exit 0"} {
		script, tag := escape(r, then)
		require.NoError(t, os.RemoveAll(filepath.Join(workspace(r), "escaped")))
		step := sh(fmt.Sprintf("service-%d", i), script)
		step.Detach = true
		out := newBuffer()
		_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
		require.NoError(t, err)
		out.waitFor(t, "escaped")
		requireRunning(t, tag)

		other, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory))
		require.NoError(t, err)
		left, err := other.Cleanup(t.Context(), r.ledger.ofKind("process"))
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, other.Close())
		requireGone(t, r, tag)
	}
}

// requireRunning waits for the daemon, which tells of itself before it sleeps.
func requireRunning(t *testing.T, tag string) {
	t.Helper()
	require.Eventually(t, func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		return slices.ContainsFunc(files, func(file string) bool {
			b, _ := os.ReadFile(file)
			return bytes.Contains(b, []byte("sleep\x00"+tag))
		})
	}, 20*time.Second, 10*time.Millisecond, "the daemon does not run")
}

// A privileged step may create its own control groups.
func TestNestedControlGroupsAreRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	res, out := r.run(sh("step", `g=$(find /sys/fs/cgroup -name "*-$DLITE_PROCESS" 2>/dev/null)
		[ -n "$g" ] && mkdir -p "$g/inner/most" || exit 0
		sleep 600 & echo $! > "$g/inner/most/cgroup.procs" && echo moved`))
	require.Zero(t, res.ExitCode, out)
	cgroupsOf(t, r)
	require.Equal(t, "moved\n", out)
	requireNoProcess(t, r)
	for _, path := range cgroupsOf(t, r) {
		require.NoDirExists(t, path)
	}
}

// A record of a foreign control group removes nothing.
func TestCleanupLeavesForeignControlGroupsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := filepath.Join(t.TempDir(), "dlite-0123456789ab-0123456789abcdef-00")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, path := range []string{"/sys/fs/cgroup", "relative", dir, dir + "/../" + filepath.Base(dir)} {
		data, err := json.Marshal(map[string]string{"cgroup": path})
		require.NoError(t, err)
		left, err := r.d.Cleanup(t.Context(), []driver.Resource{{Kind: "process", ID: "0123", Data: data}})
		require.ErrorContains(t, err, "is not a control group")
		require.Len(t, left, 1)
	}
	require.DirExists(t, dir)
	data, err := json.Marshal(map[string]string{"cgroup": dir + "-gone"})
	require.NoError(t, err)
	_, err = r.d.Cleanup(t.Context(), []driver.Resource{{Kind: "process", ID: "0123", Data: data}})
	require.NoError(t, err)
}

// Rule D4: SIGTERM as often as configured, then SIGKILL.
func TestHostStepGetsSIGTERMAgainAndThenSIGKILL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option []option
		script string
		want   int
	}{
		"ends at the second": {graceAndTermination(0, 5, 100*time.Millisecond), `n=0; trap 'n=$((n+1)); echo TERM$n; [ $n -lt 2 ] || exit 0' TERM`, 2},
		"never ends":         {graceAndTermination(0, 3, 100*time.Millisecond), `n=0; trap 'n=$((n+1)); echo TERM$n' TERM`, 3},
		"has more grace":     {graceAndTermination(time.Second, 2, 100*time.Millisecond), `n=0; trap 'n=$((n+1)); echo TERM$n' TERM`, 2},
		"is not asked":       {graceAndTermination(0, 0, 0), `n=0; trap 'n=$((n+1)); echo TERM$n' TERM`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.option...).init()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, done := newBuffer(), make(chan error, 1)
			go func() {
				_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: sh("step", c.script+`; echo started; while :; do sleep 0.02; done`)}, out, r.ledger)
				done <- err
			}()
			out.waitFor(t, "started")
			cancel()
			require.ErrorIs(t, receive(t, done), context.Canceled)
			require.Equal(t, c.want, strings.Count(out.String(), "TERM"), out.String())
			requireNoProcess(t, r)
		})
	}
}

func graceAndTermination(grace time.Duration, attempts int, interval time.Duration) []option {
	return []option{withGrace(grace), withTermination(attempts, interval)}
}

// A process that left the group gets SIGTERM once, like the others.
func TestAProcessThatLeftTheGroupGetsSIGTERM(t *testing.T) {
	t.Parallel()
	r := newRig(t, withGrace(time.Minute)).init()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	script := fmt.Sprintf(`trap 'echo first; exit' TERM
		setsid env -i sh -c 'trap "echo hidden >> %s/log; exit" TERM; echo up; while :; do sleep 0.02; done' &
		while :; do sleep 0.02; done`, workspace(r))
	out, done := newBuffer(), make(chan error, 1)
	go func() {
		_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: sh("step", script)}, out, r.ledger)
		done <- err
	}()
	out.waitFor(t, "up")
	cancel()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	cgroupsOf(t, r)
	require.Equal(t, 1, strings.Count(out.String(), "first\n"))
	log, err := os.ReadFile(filepath.Join(workspace(r), "log"))
	require.NoError(t, err)
	require.Equal(t, "hidden\n", string(log))
}

func TestTerminationOptionIsChecked(t *testing.T) {
	t.Parallel()
	for _, o := range []option{withTermination(-1, 1), withTermination(1, 0)} {
		_, err := newDriver(o)
		require.Error(t, err)
	}
}
