package service

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shortDir returns a folder whose path fits into the address of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "svc")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func attach(t *testing.T, cfg Config) *Host {
	t.Helper()
	cfg.Program, cfg.Log = "delegate", zerolog.Nop()
	h, err := Attach(t.Context(), cfg)
	require.NoError(t, err)
	return h
}

// Rule G4: status reads the state of the running process, and tells a process that has ended from one that hangs.
func TestStatusIsReadFromTheRunningProcess(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "run", "status.sock")
	_, err := Read(t.Context(), socket)
	require.ErrorIs(t, err, ErrNotRunning)

	h := attach(t, Config{Socket: socket, Status: func() Status {
		return Status{State: Running, Delegate: &Delegate{Name: "one", SlotsUsed: 1, SlotsMax: 2}}
	}})
	s, err := Read(t.Context(), socket)
	require.NoError(t, err)
	assert.Equal(t, Running, s.State)
	assert.Equal(t, os.Getpid(), s.PID)
	assert.Equal(t, "delegate", s.Program)
	assert.NotEmpty(t, s.Version)
	assert.Equal(t, 2, s.Delegate.SlotsMax)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "other users must not read the state")
	_, err = Attach(t.Context(), Config{Socket: socket, Log: zerolog.Nop()})
	require.ErrorContains(t, err, "another process serves")
	require.NoError(t, h.Close())
	_, err = Read(t.Context(), socket)
	require.ErrorIs(t, err, ErrNotRunning)

	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket) // it accepts no connection
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // it has served nothing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = Read(ctx, socket)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNotRunning)
}

// A file of the operator at the path of the socket is not removed.
func TestTheSocketReplacesOnlySockets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortDir(t), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	_, err := Attach(t.Context(), Config{Socket: file, Log: zerolog.Nop()})
	require.ErrorContains(t, err, "is no socket")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(b))
}

// messages receives what a program sends to systemd.
func messages(t *testing.T) (string, <-chan string) {
	t.Helper()
	path := filepath.Join(shortDir(t), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	all, done := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 4096); ; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				all <- line
			}
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return path, all
}

// next returns the messages up to the first that begins with want.
func next(t *testing.T, all <-chan string, want string) (before []string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case line := <-all:
			if strings.HasPrefix(line, want) {
				return before
			}
			before = append(before, line)
		case <-limit:
			require.FailNow(t, "there is no message "+want, "%v", before)
		}
	}
}

// Rule G4: the program reports to systemd that it is ready after its registration, that it lives, and that it drains.
func TestSystemdLearnsTheState(t *testing.T) {
	t.Parallel()
	socket, all := messages(t)
	var state atomic.Pointer[State]
	set := func(s State) { state.Store(&s) }
	set(Starting)
	var hangs atomic.Bool
	var stages atomic.Int32
	stages.Store(1)
	h := &Host{
		cfg: Config{
			Log: zerolog.Nop(), Status: func() Status {
				return Status{State: *state.Load(), Delegate: &Delegate{Stages: int(stages.Load())}}
			},
			Alive: func(context.Context) error {
				if hangs.Load() {
					return errors.New("it hangs")
				}
				return nil
			},
		},
		notify: notifier{socket: socket, watchdog: 30 * time.Millisecond},
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.end = cancel
	h.running.Go(func() { h.report(ctx) })

	next(t, all, "STATUS=starting")
	assert.NotContains(t, next(t, all, "WATCHDOG=1"), "READY=1")
	set(Running)
	next(t, all, "READY=1")
	next(t, all, "WATCHDOG=1")
	set(Draining)
	next(t, all, "STOPPING=1")
	next(t, all, "EXTEND_TIMEOUT_USEC=60000000")
	hangs.Store(true)
	next(t, all, "EXTEND_TIMEOUT_USEC") // one that may have been under way
	before := append(next(t, all, "EXTEND_TIMEOUT_USEC"), next(t, all, "EXTEND_TIMEOUT_USEC")...)
	assert.NotContains(t, before, "WATCHDOG=1")
	// A drain that has no work left and does not end is a defect: systemd may kill it.
	stages.Store(0)
	next(t, all, "STATUS=draining: 0 stages")
	assert.NotContains(t, next(t, all, "STOPPING=1"), "EXTEND_TIMEOUT_USEC=60000000")
	require.NoError(t, h.Close())
}

// systemd reads one line: text from outside cannot add a message.
func TestTheStateIsOneLine(t *testing.T) {
	t.Parallel()
	text := describe(Status{State: Starting, Message: "x\nREADY=1" + strings.Repeat("ä", 300)})
	assert.NotContains(t, text, "\n")
	assert.LessOrEqual(t, len(text), maxMessage+3)
	assert.True(t, strings.HasPrefix(text, "starting: x READY=1"))
}

func TestTheWatchdogIsThatOfTheProcess(t *testing.T) {
	t.Parallel()
	env := map[string]string{"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
	get := func(name string) string { return env[name] }
	assert.Zero(t, newNotifier(get).watchdog)
	delete(env, "WATCHDOG_PID")
	n := newNotifier(get)
	assert.Equal(t, 3*time.Second, n.watchdog)
	assert.Equal(t, "\x00abstract", n.socket)
	assert.False(t, newNotifier(func(string) string { return "" }).active())
}

// Rule G4: a service manager starts a failing program again and again, with growing pauses.
func TestFailedStartsArePaused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "starts")
	h := &Host{cfg: Config{Log: zerolog.Nop(), Status: func() Status { return Status{State: Starting} }}, starts: file}
	require.NoError(t, h.Pause(t.Context())) // the first start has no pause
	assert.Equal(t, 1, countStarts(file))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Pause(ctx), context.Canceled) // it waits
	assert.Equal(t, 2, countStarts(file))
	h.forgetStarts()
	assert.Zero(t, countStarts(file))

	for failed, want := range map[int]time.Duration{0: 0, 1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: longestPause, 1 << 40: longestPause} {
		assert.Equal(t, want, startPause(failed))
	}
	require.NoError(t, os.WriteFile(file, []byte("-3\n"), 0o600))
	assert.Zero(t, countStarts(file))
}

// Rule G4: status has the exit codes of init scripts.
func TestExitCodesOfStatus(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]int{Starting: 0, Running: 0, Draining: 0, Stopped: 3, Failed: 3, Missing: 4, Silent: 4} {
		err := Status{Service: "s", State: state}.exit()
		if want == 0 {
			assert.NoError(t, err, state)
			continue
		}
		var coded exitCode
		require.ErrorAs(t, err, &coded, state)
		assert.Equal(t, want, coded.ExitCode(), state)
	}
}
