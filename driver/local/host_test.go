//go:build unix

package local_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"

	"github.com/delegate-io/dlite/internal/testbed"
)

// Rules D4 and T8: a step gets none of the delegate's own configuration.
func TestHostStepHasACleanEnvironment(t *testing.T) {
	t.Setenv("DELEGATE_TOKEN", "not-for-steps")
	r := newRig(t).init()
	r.env.Envs = map[string]string{"SHARED": "stage", "STEP": "stage"}
	step := sh("step", "env")
	step.Environment = map[string]string{"STEP": "step", "DRONE_OUTPUT": "elsewhere"}
	_, out := r.run(step)
	require.NotContains(t, out, "not-for-steps")
	lines := strings.Split(out, "\n")
	require.Contains(t, lines, "SHARED=stage")
	require.Contains(t, lines, "STEP=step")
	require.NotContains(t, lines, "DRONE_OUTPUT=elsewhere")
	require.Contains(t, out, "\nPATH=")
}

// A host step without an entrypoint is an error (section 5 of docs/protocol.md).
func TestHostStepNeedsAnEntrypoint(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	_, err := r.fail(stage.Step{ID: "step", Run: stage.Run{Command: []string{"echo"}}})
	require.ErrorContains(t, err, "entrypoint")
	_, err = r.fail(stage.Step{ID: "step", Run: stage.Run{Entrypoint: []string{"no-such-program"}}})
	require.ErrorContains(t, err, `"no-such-program" is not in the step's PATH`)
	_, err = r.fail(stage.Step{ID: "step", Environment: map[string]string{"A": "secret\x00value"}, Run: stage.Run{Entrypoint: []string{"true"}}})
	require.ErrorContains(t, err, "variable A")
	require.NotContains(t, err.Error(), "secret")
}

func TestHostStepFindsProgramsInItsOwnPath(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env.Files = []*stage.File{{Path: "bin/tool", Mode: 0o755, Data: "#!/bin/sh\necho tool \"$@\"\n"}}
	r.init()
	for _, path := range []string{"bin", filepath.Join(workspace(r), "bin")} {
		_, out := r.run(stage.Step{
			ID: "step", Environment: map[string]string{"PATH": path + ":/bin:/usr/bin"},
			Run: stage.Run{Entrypoint: []string{"tool", "a"}, Command: []string{"b c"}},
		})
		require.Equal(t, "tool a b c\n", out)
	}
	_, out := r.run(stage.Step{ID: "step", WorkingDir: "bin", Run: stage.Run{Entrypoint: []string{"./tool"}}})
	require.Equal(t, "tool\n", out)
}

func TestHostStepWorkingDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	for dir, want := range map[string]string{
		"": workspace(r), "a/b": workspace(r) + "/a/b", "/workspace/c": workspace(r) + "/c", "/": "/",
	} {
		step := sh("step", "pwd; echo $DLITE_WORKSPACE")
		step.WorkingDir = dir
		_, out := r.run(step)
		require.Equal(t, want+"\n"+workspace(r)+"\n", out)
	}
	for _, dir := range []string{"..", "a/../../b", "/workspace/../x", "/no/such/folder"} {
		step := sh("step", "pwd")
		step.WorkingDir = dir
		_, err := r.fail(step)
		require.ErrorContains(t, err, "working directory")
	}
}

// workspace returns the workspace of the only transaction.
func workspace(r *rig) string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.work, "*", "workspace"))
	require.NoError(r.t, err)
	require.Len(r.t, found, 1)
	return found[0]
}

func TestAnAbortKillsAllProcessesOfAHostStep(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, 300 * time.Millisecond} {
		r := newRig(t, withGrace(grace)).init()
		ctx, cancel := context.WithCancelCause(t.Context())
		out := newBuffer()
		done := make(chan error, 1)
		go func() {
			_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: sh("step", `trap '' TERM; setsid sleep 600 & echo started; sleep 600; sleep 600`)}, out, r.ledger)
			done <- err
		}()
		out.waitFor(t, "started")
		cancel(errors.New("the user does not want it"))
		err := receive(t, done)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "the user does not want it")
		requireNoProcess(t, r)
	}
}

// Rule T7: SIGTERM first, SIGKILL after the grace.
func TestHostStepGetsItsGrace(t *testing.T) {
	t.Parallel()
	for _, soft := range []bool{false, true} {
		grace := time.Minute
		if soft {
			grace = 0
		}
		r := newRig(t, withGrace(grace)).init()
		ctx, cancel := context.WithCancel(t.Context())
		out := newBuffer()
		done := make(chan error, 1)
		step := sh("step", `trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.05; done`)
		step.SoftStop = soft
		go func() {
			_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: step}, out, r.ledger)
			done <- err
		}()
		out.waitFor(t, "started")
		start := time.Now()
		cancel()
		require.ErrorIs(t, receive(t, done), context.Canceled)
		require.Equal(t, 1, strings.Count(out.String(), "bye\n"), out.String())
		require.Less(t, time.Since(start), 8*time.Second, "the grace was waited for in full")
	}
}

// The children of a host step end with its shell.
func TestChildrenOfAHostStepEndWithIt(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"holds the output":        `sleep 600 & echo done`,
		"closed the output":       `sleep 600 >/dev/null 2>&1 & echo done`,
		"left the group":          `setsid sleep 600 >/dev/null 2>&1 & echo done`,
		"left with output":        `setsid sleep 600 & echo done`,
		"ignores polite requests": `(trap '' TERM HUP; sleep 600) & echo done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).init()
			start := time.Now()
			res, out := r.run(sh("step", script))
			require.Zero(t, res.ExitCode)
			require.Equal(t, "done\n", out)
			require.Less(t, time.Since(start), 20*time.Second)
			requireNoProcess(t, r)
		})
	}
}

// A child may finish its output after the shell has ended.
func TestHostStepChildMayFinishItsOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	_, out := r.run(sh("step", `(sleep 0.2; echo late) & echo early`))
	require.Equal(t, "early\nlate\n", out)
}

// A process that clears its environment and leaves the group does not delay the end of the step.
func TestAnEscapedProcessDoesNotDelayAHostStep(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	start := time.Now()
	_, out := r.run(sh("step", `setsid env -i sleep 6 & echo done`))
	require.Equal(t, "done\n", out)
	require.Less(t, time.Since(start), 5*time.Second)
}

// A step as another user has the supplementary groups of that user.
func TestHostStepRunsAsAnotherUserWithItsGroups(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "only root can run steps as other users")
	}
	r := newRig(t).init()
	for _, name := range someUsers(t) {
		u, err := user.Lookup(name)
		require.NoError(t, err)
		groups, err := u.GroupIds()
		require.NoError(t, err)
		step := sh("step", `id -u; id -g; id -G; echo $HOME $USER; echo a=1 >> $DRONE_OUTPUT; touch by-$USER`)
		step.User = name
		res, out := r.run(step)
		lines := strings.Split(out, "\n")
		require.Equal(t, u.Uid, lines[0])
		require.Equal(t, u.Gid, lines[1])
		require.ElementsMatch(t, groups, strings.Fields(lines[2]))
		require.Equal(t, u.HomeDir+" "+name, lines[3])
		require.Equal(t, "1", res.Outputs["a"], out)
		require.FileExists(t, filepath.Join(workspace(r), "by-"+name))
	}
	step := sh("step", `id -u; id -g; id -G`)
	step.User = "54321:54322"
	_, out := r.run(step)
	require.Equal(t, "54321\n54322\n54322\n", out)
	step.User = "54321"
	_, out = r.run(step)
	require.Equal(t, "54321\n54321\n54321\n", out, "never root's groups")
	step.User = "no-such-user"
	_, err := r.fail(step)
	require.ErrorContains(t, err, `user "no-such-user"`)
}

// someUsers returns "nobody" and, if there is one, a user with several groups.
func someUsers(t *testing.T) []string {
	t.Helper()
	users := []string{"nobody"}
	f, err := os.Open("/etc/group")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Split(s.Text(), ":")
		if len(fields) < 4 || fields[3] == "" {
			continue
		}
		name, _, _ := strings.Cut(fields[3], ",")
		if u, err := user.Lookup(name); err == nil && u.Uid != "0" && !slices.Contains(users, name) {
			return append(users, name)
		}
	}
	return users
}

func TestCloseEndsDetachedHostSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	out := newBuffer()
	step := sh("service", `echo up; sleep 600`)
	step.Detach = true
	_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.NoError(t, err)
	out.waitFor(t, "up\n")
	require.NoError(t, r.d.Close())
	requireNoProcess(t, r)
	_, err = r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.ErrorContains(t, err, "closed")
	requireNoProcess(t, r)
}

// Rule T8: two transactions do not see each other.
func TestTransactionsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	a := newRig(t).init()
	b := &driver.Environment{ID: a.env.ID, Volumes: []*stage.Volume{{Temp: &stage.TempVolume{ID: "v"}}}}
	require.NoError(t, a.d.Init(t.Context(), b, a.ledger))
	a.run(sh("step", "echo a > file; pwd"))
	out := newBuffer()
	_, err := a.d.Execute(t.Context(), b, &driver.Step{Step: sh("step", "ls -A")}, out, a.ledger)
	require.NoError(t, err)
	require.Empty(t, out.String())
	step := sh("step", "true")
	step.Volumes = []*stage.VolumeMount{{Name: "v", Path: "/v"}}
	_, err = a.fail(step)
	require.ErrorContains(t, err, `volume "v"`)
}

func TestExecuteNeedsAnInit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.fail(sh("step", "true"))
	require.ErrorContains(t, err, "init has not run")
	r.env.State = []byte(`{"name":"x","dir":"/etc","memory":"/etc"}`)
	_, err = r.fail(sh("step", "true"))
	require.ErrorContains(t, err, "from another driver")
}

// requireNoProcess checks that no process of a recorded step runs.
func requireNoProcess(t *testing.T, r *rig) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	var markers []string
	for _, p := range r.ledger.ofKind("process") {
		markers = append(markers, "DLITE_PROCESS="+p.ID)
	}
	require.NotEmpty(t, markers)
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range environs {
		b, _ := os.ReadFile(file)
		for _, m := range markers {
			require.NotContains(t, string(b), m, "a process is left: %s", file)
		}
	}
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(60 * time.Second):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}
