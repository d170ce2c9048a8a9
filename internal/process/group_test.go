//go:build unix

package process

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// start runs a shell script whose output is a pipe. The pipe ends when all processes of the script
// have ended.
func start(t *testing.T, script string) (*Group, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	// A failed test must not block.
	require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	g, err := Start(t.Context(), &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Stdout: w, Stderr: w}, Options{})
	require.NoError(t, w.Close())
	require.NoError(t, err)
	t.Cleanup(func() { g.End() })
	return g, bufio.NewReader(r)
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	require.NoError(t, err)
	return s
}

func TestExitCodesAreTheShells(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		g, _ := start(t, script)
		<-g.Exited()
		assert.Equal(t, want, Code(g.End()), script)
		assert.Equal(t, want, Code(g.Stop(Patience{Grace: time.Hour})), "again")
	}
	assert.Equal(t, 255, Code(nil))
}

// End kills the processes that the first process leaves in its group.
func TestEndKillsTheOtherProcesses(t *testing.T) {
	t.Parallel()
	g, out := start(t, `sh -c 'trap "" TERM HUP; echo up; sleep 600' & sleep 600 & echo gone; exit 3`)
	readLine(t, out)
	readLine(t, out)
	<-g.Exited()
	assert.Equal(t, 3, Code(g.End()))
	_, err := io.ReadAll(out)
	require.NoError(t, err, "all writers have ended")
}

func TestEndKillsARunningProcess(t *testing.T) {
	t.Parallel()
	g, out := start(t, `trap "" TERM; echo up; while :; do sleep 600; done`)
	readLine(t, out)
	assert.Equal(t, 137, Code(g.End()))
	_, err := io.ReadAll(out)
	require.NoError(t, err)
}

// All processes of the group get SIGTERM and the grace, even after the first process has ended.
func TestStopGivesTheWholeGroupTheGrace(t *testing.T) {
	t.Parallel()
	g, out := start(t, `trap "exit 5" TERM; sh -c 'trap "sleep 0.3; echo cleaned up; exit" TERM; echo up; while :; do sleep 0.05; done' & while :; do sleep 0.05; done`)
	readLine(t, out)
	assert.Equal(t, 5, Code(g.Stop(Patience{Grace: time.Minute})))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Contains(t, string(rest), "cleaned up")
}

func TestStopKillsAfterTheGrace(t *testing.T) {
	t.Parallel()
	// The first script ignores the signal. In the second one the first process ends, and another one
	// ignores the signal.
	for script, code := range map[string]int{
		`trap "" TERM; echo up; while :; do sleep 600; done`:                     137,
		`sh -c 'trap "" TERM; echo up; while :; do sleep 600; done' & sleep 600`: 143,
	} {
		g, out := start(t, script)
		readLine(t, out)
		assert.Equal(t, code, Code(g.Stop(Patience{Grace: 100 * time.Millisecond})))
		_, err := io.ReadAll(out)
		require.NoError(t, err)
	}
}

// Start tries again while the program is open for writing.
func TestStartRetriesAProgramThatIsOpenForWriting(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	b, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	_, err = f.Write(b)
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { _ = f.Close() })
	g, err := Start(t.Context(), &exec.Cmd{Path: file, Args: []string{file}}, Options{})
	require.NoError(t, err)
	<-g.Exited()
	assert.Zero(t, Code(g.End()))

	_, err = Start(t.Context(), &exec.Cmd{Path: file + "-missing"}, Options{})
	require.ErrorIs(t, err, os.ErrNotExist)

	held, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, &exec.Cmd{Path: file}, Options{})
	require.ErrorIs(t, err, syscall.ETXTBSY)
	require.NoError(t, held.Close())
}

// Not parallel: it sets variables of the test process.
func TestTheEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("DLITE_TEST_TOKEN", "x")
	t.Setenv("HOME", "/somewhere")
	t.Setenv("PATH", "")
	env := Environment()
	assert.NotContains(t, env, "DLITE_TEST_TOKEN")
	assert.Equal(t, "/somewhere", env["HOME"])
	assert.NotEmpty(t, env["PATH"])
	assert.Equal(t, []string{"A=b=c", "B="}, List(map[string]string{"B": "", "A": "b=c"}))
}

// Run calls rest while the other processes of the group run, and kills them afterwards.
func TestAGroupEndsWithItsFirstProcess(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // only read from
	out := bufio.NewReader(r)
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", `(trap "" TERM; read -r _; echo last words; sleep 600) <&3 3<&- & exit 3`}, Stdout: w}
	in, more, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdin = in
	cmd.Args[2] = `exec 3<&0; ` + cmd.Args[2]
	state, err := Run(t.Context(), cmd, time.Hour, func() {
		assert.NoError(t, w.Close())
		assert.NoError(t, in.Close())
	}, func() {
		_, _ = more.WriteString("go on\n")
		said, _ := out.ReadString('\n')
		assert.Equal(t, "last words\n", said)
	})
	require.NoError(t, err)
	_, err = io.ReadAll(out)
	require.NoError(t, err, "all writers have ended")
	assert.Equal(t, 3, Code(state))
	require.NoError(t, more.Close())
}

// A group that is stopped before its first process ends gets the grace.
func TestRunStopsAGroupWithTheGrace(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // only read from
	out := bufio.NewReader(r)
	script := `sh -c 'trap "sleep 0.3; echo cleaned up; exit" TERM; echo up; while :; do sleep 0.05; done' & while :; do sleep 0.05; done`
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var reading sync.WaitGroup
	state, err := Run(ctx, &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Stdout: w}, time.Minute, func() {
		assert.NoError(t, w.Close())
		reading.Go(func() {
			_, _ = out.ReadString('\n')
			stop()
		})
	}, func() { t.Error("it did not end by itself") })
	require.NoError(t, err)
	assert.Equal(t, 143, Code(state))
	reading.Wait()
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Contains(t, string(rest), "cleaned up")
}
