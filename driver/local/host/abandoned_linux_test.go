package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// startedSupervisor is a ledger that prints the record of the supervisor.
type startedSupervisor struct{}

func (startedSupervisor) Record(_ context.Context, r driver.Resource) error {
	if r.Kind == steps.KindSupervisor {
		fmt.Println(string(r.Data))
	}
	return nil
}

// configOf returns the configuration of a driver with all directories in one.
func configOf(dir string) Config {
	return Config{WorkDir: filepath.Join(dir, "work"), MemoryDir: filepath.Join(dir, "work"), Hidden: []string{filepath.Join(dir, "ledger")}}
}

// playDelegate starts a step that does not end by itself.
func playDelegate(dir string) error {
	d, err := New(configOf(dir))
	if err != nil {
		return err
	}
	if d.supervision == nil {
		fmt.Println("{}")
		return nil
	}
	d.supervision.abandoned = 50 * time.Millisecond
	ctx, env, l := context.Background(), &driver.Environment{ID: "stage"}, startedSupervisor{}
	if err := d.Init(ctx, env, l); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "state"), env.State, 0o600); err != nil {
		return err
	}
	step := stage.Step{ID: "step", Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo started; sleep 0.5; echo later; exec sleep 1000"}}}
	_, err = d.Execute(ctx, env, &driver.Step{Step: step}, os.Stdout, l)
	return err
}

// Without the ledger no later delegate finds a supervisor.
func TestASupervisorEndsWithoutADelegateAndItsLedger(t *testing.T) {
	t.Parallel()
	testAbandoned(t, "", "host.test")
}

// The small program is a supervisor like any other. The driver starts it if it can.
func TestTheSmallProgramIsTheSupervisor(t *testing.T) {
	t.Parallel()
	testAbandoned(t, testbed.BuildStatic(t, "./driver/local/host/supervisor"), "memfd:dlite-supervisor")
}

func TestADamagedSmallProgramIsNotUsed(t *testing.T) {
	t.Parallel()
	damaged := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(damaged, []byte("not a program"), 0o600))
	testAbandoned(t, damaged, "host.test")
}

// testAbandoned kills a delegate and removes its ledger. program is part of the name of the supervisor's program.
func testAbandoned(t *testing.T, small, program string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "ledger"), 0o700))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), delegateDir+"="+dir, smallProgram+"="+small), os.Stderr
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	out := bufio.NewScanner(pipe)
	require.True(t, out.Scan())
	var record process.Record
	require.NoError(t, json.Unmarshal(out.Bytes(), &record))
	if record.PID == 0 {
		require.NoError(t, cmd.Wait())
		testbed.Unavailable(t, "namespaces", "this machine separates no steps")
	}
	ended, err := unix.PidfdOpen(record.PID, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(ended) }()
	t.Cleanup(func() { _ = unix.PidfdSendSignal(ended, unix.SIGKILL, nil, 0) })
	require.True(t, out.Scan())
	require.Equal(t, "started", out.Text())
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", record.PID))
	if !errors.Is(err, os.ErrPermission) {
		require.NoError(t, err)
		require.Contains(t, exe, program)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ledger")))
	require.True(t, out.Scan(), "while the delegate is connected, the supervisor goes on")
	require.Equal(t, "later", out.Text())
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	n := 0
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(ended), Events: unix.POLLIN}}, 30_000)
	}
	require.NoError(t, err)
	require.Equal(t, 1, n, "the supervisor waits for a delegate that cannot come back")
}
