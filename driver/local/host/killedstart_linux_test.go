package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

func say(text string) *driver.Step {
	return &driver.Step{Step: stage.Step{ID: "step", Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo " + text}}}}
}

// newHost returns a driver that separates steps, with a transaction.
func newHost(t *testing.T, dir string) *Driver {
	t.Helper()
	d, err := New(configOf(dir))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	if d.supervision == nil {
		testbed.Unavailable(t, "namespaces", "this machine separates no steps")
	}
	return d
}

// supervisors is a ledger that keeps the records of supervisors.
type supervisors struct{ all []driver.Resource }

func (s *supervisors) Record(_ context.Context, r driver.Resource) error {
	if r.Kind == steps.KindSupervisor {
		s.all = append(s.all, r)
	}
	return nil
}

// Rule T5: a driver that is killed at any point of the start of a supervisor leaves one of these states. The next one starts
// a supervisor, ends the old one, and runs the step. A supervisor that was ready is never started again.
func TestAStartThatWasKilledIsRepeated(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, p *newborn, r *run, record []byte){
		"before the directory": func(*testing.T, *newborn, *run, []byte) {},
		"before the record": func(t *testing.T, _ *newborn, r *run, _ []byte) {
			require.NoError(t, steps.MakeDir(r.Tx.Supervisor.Dir, 0o700))
		},
		"in the record": func(t *testing.T, _ *newborn, r *run, record []byte) {
			require.NoError(t, steps.MakeDir(r.Tx.Supervisor.Dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(r.Tx.Supervisor.Dir, startFile), record[:len(record)/2], 0o600))
		},
		"before the layout": func(t *testing.T, _ *newborn, r *run, record []byte) {
			require.NoError(t, steps.MakeDir(r.Tx.Supervisor.Dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(r.Tx.Supervisor.Dir, startFile), record, 0o600))
		},
		"ready": func(t *testing.T, p *newborn, r *run, record []byte) {
			require.NoError(t, steps.MakeDir(r.Tx.Supervisor.Dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(r.Tx.Supervisor.Dir, startFile), record, 0o600))
			l, err := layoutOf(&r.Driver.Config, r.Tx, r.Env)
			require.NoError(t, err)
			require.NoError(t, p.prepare(t.Context(), l))
		},
		"ready, and ended since": func(t *testing.T, p *newborn, r *run, record []byte) {
			require.NoError(t, steps.MakeDir(r.Tx.Supervisor.Dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(r.Tx.Supervisor.Dir, startFile), record, 0o600))
			l, err := layoutOf(&r.Driver.Config, r.Tx, r.Env)
			require.NoError(t, err)
			require.NoError(t, p.prepare(t.Context(), l))
			require.NoError(t, p.record.Destroy(t.Context().Done()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newHost(t, t.TempDir())
			env, l := &driver.Environment{ID: "stage"}, &supervisors{}
			require.NoError(t, d.Init(t.Context(), env, l))
			shared, err := d.shared.NewRun(env, say("hello"), &bytes.Buffer{}, l)
			require.NoError(t, err)
			p, err := d.supervision.launch()
			require.NoError(t, err)
			record, err := json.Marshal(p.record)
			require.NoError(t, err)
			leave(t, p, &run{Run: shared, d: d}, record)
			_ = p.conn.Close() // as the end of the driver does

			var out bytes.Buffer
			res, err := d.Execute(t.Context(), env, say("hello"), &out, l)
			require.NoError(t, err)
			assert.Zero(t, res.ExitCode)
			res.End()
			assert.Equal(t, "hello\n", out.String())
			require.Len(t, l.all, 1)
			awaitEnd(t, p.record.PID)

			second, err := readRecord(l.all[0])
			require.NoError(t, err)
			require.NoError(t, second.Destroy(t.Context().Done()))
			_, err = d.Execute(t.Context(), env, say("again"), &out, l)
			require.ErrorIs(t, err, errSupervisorEnded)
			assert.Len(t, l.all, 1)
			_, err = d.Cleanup(t.Context(), l.all)
			require.NoError(t, err)
		})
	}
}

// awaitEnd waits until a process has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	n := 0
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
	}
	require.NoError(t, err)
	require.Equal(t, 1, n, "the process %d has not ended", pid)
}

// Rule T5: as above, with a delegate that is really killed, in the milliseconds after it has recorded the supervisor.
func TestADelegateIsKilledWhileItStartsASupervisor(t *testing.T) {
	t.Parallel()
	const kills = 12
	begun := 0
	for n := range kills {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			d := newHost(t, dir)
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env, cmd.Stderr = append(os.Environ(), delegateDir+"="+dir), os.Stderr
			pipe, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			out := bufio.NewScanner(pipe)
			require.True(t, out.Scan())
			var old process.Record
			require.NoError(t, json.Unmarshal(out.Bytes(), &old))
			select {
			case <-time.After(time.Duration(n) * time.Millisecond / 2):
			case <-t.Context().Done():
			}
			require.NoError(t, cmd.Process.Kill())
			ran := out.Scan() // the step has run: the next delegate follows it, which other tests cover
			require.Error(t, cmd.Wait())
			state, err := os.ReadFile(filepath.Join(dir, "state"))
			require.NoError(t, err)
			env := &driver.Environment{ID: "stage", State: state}
			if ran {
				begun++
				require.NoError(t, old.Destroy(t.Context().Done()))
				return
			}
			l, text := &supervisors{}, &bytes.Buffer{}
			res, err := d.Execute(t.Context(), env, say("hello"), text, l)
			require.NoError(t, err)
			assert.Zero(t, res.ExitCode)
			res.End()
			assert.Equal(t, "hello\n", text.String())
			left, err := d.Cleanup(t.Context(), l.all)
			require.NoError(t, err)
			require.Empty(t, left)
			if len(l.all) == 0 { // it has become ready just before the kill
				require.NoError(t, old.Destroy(t.Context().Done()))
			}
			awaitEnd(t, old.PID)
		})
	}
	t.Logf("%d kills, %d of them after the start of the step", kills, begun)
}
