//go:build unix

package cgi_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
)

// The output of a task without a log service goes to the logger of the context.
func TestWithoutALogServiceLinesGoToTheDelegatesLog(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(context.Context, logger.StreamConfig) logger.TaskLog{
		"no function": nil,
		"no log":      func(context.Context, logger.StreamConfig) logger.TaskLog { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLinesGoToTheDelegatesLog(t, newRig(t, func(c *cgi.Config) { c.OpenLog = open }))
		})
	}
}

func testLinesGoToTheDelegatesLog(t *testing.T, r *rig) {
	t.Helper()
	out := &logs{wrote: make(chan struct{}, 1)}
	ctx := logger.NewContext(t.Context(), zerolog.New(out))
	resp := r.call(ctx, r.script(`printf 'one\r\ntwo\nthree' >&2; head -c 70000 /dev/zero | tr '\0' x >&2; printf 'A: b\n\nok'`), "1")
	require.Equal(t, task.OK, resp.Code, resp.Error)
	got := out.String()
	for _, line := range []string{`{"level":"info","output":"one","message":"task output"}`, `"output":"two"`, `"output":"threexxx`} {
		assert.Contains(t, got, line)
	}
	assert.Equal(t, 5, strings.Count(got, "\n"), "a line of 70 kB is two")
}

// deaf is a log whose Write blocks until it is released.
type deaf struct {
	logs
	hear chan struct{}
}

func (d *deaf) open(context.Context, logger.StreamConfig) logger.TaskLog { return d }

func (d *deaf) Write(p []byte) (int, error) {
	<-d.hear
	return d.logs.Write(p)
}

// Rule D8: a blocked log does not delay the program, and the lost bytes are reported.
func TestABlockedLogDoesNotDelayTheProgram(t *testing.T) {
	t.Parallel()
	d := &deaf{hear: make(chan struct{})}
	d.wrote = make(chan struct{}, 1)
	r := newRig(t, func(c *cgi.Config) { c.OpenLog, c.LogWait = d.open, time.Millisecond })
	a := r.answer(r.script(`yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c 10485760 >&2; printf 'A: b\n\nok'`), "1")
	assert.Equal(t, "ok", string(a.Body))
	close(d.hear)
	require.NoError(t, r.h.Close(t.Context()), "the lines are delivered after the answer")
	got := d.String()
	assert.Contains(t, got, "bytes of output are lost: the log took nothing for 2s]\n")
	assert.Less(t, len(got), 2<<20)
	for line := range strings.Lines(got) {
		if line[0] == '0' {
			assert.Len(t, line, 64, "only whole lines are lost")
		}
	}
}

// closing counts how often it is closed.
type closing struct{ n atomic.Int32 }

func (c *closing) Write(p []byte) (int, error) { return len(p), nil }

func (c *closing) Close(context.Context) error { c.n.Add(1); return nil }

// The log of a program without output is closed too, before the answer.
func TestALogIsClosedWhateverWasSaid(t *testing.T) {
	t.Parallel()
	c := &closing{}
	r := newRig(t, func(cfg *cgi.Config) {
		cfg.LogWait = time.Minute
		cfg.OpenLog = func(context.Context, logger.StreamConfig) logger.TaskLog { return c }
	})
	for n := range int32(3) { // the first one says that the program is fetched
		r.answer(r.script(`printf 'A: b\n\nok'`), "1")
		assert.Equal(t, n+1, c.n.Load())
	}
}

// A log that cannot be delivered ends with the handler.
func TestCloseCancelsTheDeliveryOfLogs(t *testing.T) {
	t.Parallel()
	closing := make(chan struct{})
	h, err := cgi.New(cgi.Config{Cache: t.TempDir(), LogWait: -1, OpenLog: func(context.Context, logger.StreamConfig) logger.TaskLog {
		return &endless{closing: closing}
	}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = task.Serve(t.Context(), h, &task.Task{ID: "t", Type: "x", Config: []byte(`{"repository":{"clone":"/nowhere"}}`)})
	})
	wg.Wait()
	<-closing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Close(ctx), context.Canceled)
}

// endless is a log whose Close blocks until its context ends.
type endless struct{ closing chan struct{} }

func (e *endless) Write(p []byte) (int, error) { return len(p), nil }

func (e *endless) Close(ctx context.Context) error {
	close(e.closing)
	<-ctx.Done()
	return ctx.Err()
}
