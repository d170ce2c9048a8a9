package logger_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
)

// The variables of the process of TestAWriterIsKilled.
const (
	victimDir   = "DLITE_TEST_DELIVERER_DIR"
	victimEnded = "DLITE_TEST_DELIVERER_ENDED"
)

// unreachable is the transport to a log service that is away.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

// TestAWriterIsKilled is the process that the other tests start: it writes a log and kills
// itself, before or after the end of the log.
func TestAWriterIsKilled(t *testing.T) {
	dir := os.Getenv(victimDir)
	if dir == "" {
		t.Skip("not the process of another test")
	}
	synctest.Test(t, func(t *testing.T) {
		d, err := logger.OpenDeliverer(logger.DelivererConfig{
			Dir: filepath.Join(dir, "logs"), Memory: dir, HTTPClient: &http.Client{Transport: unreachable{}},
		})
		require.NoError(t, err)
		target := logTo("k")
		target.Writer = "first process"
		s := d.Open(t.Context(), target)
		for i := range 500 {
			_, _ = fmt.Fprintf(s, "line %d\n", i)
		}
		<-time.After(time.Second) // requests have failed
		for i := range 500 {
			_, _ = fmt.Fprintf(s, "line %d\n", 500+i)
		}
		if os.Getenv(victimEnded) != "" {
			require.NoError(t, s.Close(t.Context()))
		}
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	})
}

// killWriter runs TestAWriterIsKilled. It returns a directory in memory with the files of
// the process, and its output.
func killWriter(t *testing.T, ended bool) (dir, output string) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dlite-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAWriterIsKilled$")
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	if ended {
		cmd.Env = append(cmd.Env, victimEnded+"=1")
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%s", out)
	var want strings.Builder
	for i := range 1000 {
		_, _ = fmt.Fprintf(&want, "line %d\n", i)
	}
	return dir, want.String()
}

func openAfter(t *testing.T, p *pipes, dir string) *post {
	t.Helper()
	d := openPost(t, p, func(c *logger.DelivererConfig) { c.Dir, c.Memory = filepath.Join(dir, "logs"), dir })
	d.dir = filepath.Join(dir, "logs")
	return d
}

// inBubble runs a test with the clock of a bubble. The killed process must run outside of it.
func inBubble(t *testing.T, f func(t *testing.T, k *keeper, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		f(t, k, newPipes(t, k))
	})
}

func TestTheNextProcessDeliversTheLogOfAStepThatHadEnded(t *testing.T) {
	t.Parallel()
	dir, want := killWriter(t, true)
	assert.False(t, contains(t, dir, "fake-token"), "the token is encrypted in memory, and not on the disk")
	inBubble(t, func(t *testing.T, k *keeper, p *pipes) {
		d := openAfter(t, p, dir)
		d.close(t)
		assert.Equal(t, want, text(k.archived()))
		assert.Equal(t, want, text(k.live))
		assert.Empty(t, d.left(t))
	})
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "only the directory of the deliverer is left")
}

// The process was killed before the end of the step, and no process continues the step.
func TestTheNextProcessDeliversTheLogOfAStepThatHadNotEnded(t *testing.T) {
	t.Parallel()
	dir, want := killWriter(t, false)
	inBubble(t, func(t *testing.T, k *keeper, p *pipes) {
		d := openAfter(t, p, dir)
		<-time.After(10 * time.Minute)
		assert.Empty(t, k.archived(), "the step may be resumed")
		<-time.After(10 * time.Minute)
		d.close(t)
		assert.Equal(t, want, text(k.archived()))
	})
}

// The end of a step that cannot be followed is written after its earlier output.
func TestTheNextProcessContinuesTheLogOfAStep(t *testing.T) {
	t.Parallel()
	dir, want := killWriter(t, false)
	inBubble(t, func(t *testing.T, k *keeper, p *pipes) {
		k.opened = true
		d := openAfter(t, p, dir)
		target := logTo("k")
		target.SkipOpeningStream = true
		s := d.Open(t.Context(), target)
		_, _ = io.WriteString(s, "the delegate was restarted\n")
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, want+"the delegate was restarted\n", text(k.archived()))
		for i, l := range k.archived() {
			require.EqualValues(t, i, l.Pos)
		}
		d.close(t)
		assert.Empty(t, d.left(t))
	})
}

// A step that is followed sends its output again, with empty lines for those that its
// infrastructure does not have any more.
func TestTheLogOfAFollowedStepArrivesOnce(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		dir, want := killWriter(t, ended)
		inBubble(t, func(t *testing.T, k *keeper, p *pipes) {
			k.opened = true
			p.away.Store(true)
			d := openAfter(t, p, dir)
			target := logTo("k")
			target.SkipOpeningStream, target.Writer = true, "first process"
			s := d.Open(t.Context(), target)
			_, _ = io.WriteString(s, strings.Repeat("\n", 800))
			_, _ = io.WriteString(s, strings.SplitAfterN(want, "\n", 801)[800]+"more\n")
			require.NoError(t, s.Close(t.Context()))
			<-time.After(time.Hour)
			p.away.Store(false)
			d.close(t)
			assert.Equal(t, want+"more\n", text(k.archived()))
			assert.Equal(t, want+"more\n", text(k.live))
			assert.Empty(t, d.left(t))
		})
	}
}

// After a restart of the machine the files are there and the tokens are not.
func TestLogsAreDroppedWithAnEventWhenTheirTokensAreLost(t *testing.T) {
	t.Parallel()
	dir, _ := killWriter(t, true)
	memory, err := filepath.Glob(filepath.Join(dir, "dlite-logs-*"))
	require.NoError(t, err)
	require.Len(t, memory, 1)
	require.NoError(t, os.RemoveAll(memory[0]))
	inBubble(t, func(t *testing.T, _ *keeper, p *pipes) {
		d := openAfter(t, p, dir)
		assert.Contains(t, d.events.String(), `"logs":1`)
		assert.Contains(t, d.events.String(), "logs of an earlier process are dropped")
		assert.Empty(t, d.left(t))
		d.close(t)
	})
}

// An incomplete line at the end of a file is skipped, and damage elsewhere drops the log.
func TestDamagedFilesDoNotStopTheDeliverer(t *testing.T) {
	t.Parallel()
	for _, torn := range []bool{true, false} {
		dir, want := killWriter(t, !torn)
		files, err := filepath.Glob(filepath.Join(dir, "logs", "*-*"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		f, err := os.OpenFile(files[0], os.O_RDWR, 0)
		require.NoError(t, err)
		if torn {
			_, err = f.Seek(0, io.SeekEnd)
			require.NoError(t, err)
		}
		_, err = f.WriteString(`{"level":"info","pos":1`)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		inBubble(t, func(t *testing.T, k *keeper, p *pipes) {
			d := openAfter(t, p, dir)
			<-time.After(time.Hour)
			d.close(t)
			assert.Empty(t, d.left(t))
			if torn {
				assert.Equal(t, want, text(k.archived()))
			} else {
				assert.Contains(t, d.events.String(), "damaged")
			}
		})
	}
}
