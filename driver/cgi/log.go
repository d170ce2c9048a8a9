package cgi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// openLog opens the log of a task. Unless OpenLog in the configuration opens one, a task that names
// no log service has each line at info level in the logger of the context.
func (h *Handler) openLog(ctx context.Context, t *task.Task) logger.TaskLog {
	var s logger.StreamConfig
	if l := t.Logger; l != nil {
		s = logger.StreamConfig{
			URL: l.Address, Token: l.Token, Account: l.Account, Key: l.Key,
			IndirectUpload: l.IndirectUpload, TrimNewLineSuffix: l.TrimNewLineSuffix,
			SkipOpeningStream: l.SkipOpeningStream, SkipClosingStream: l.SkipClosingStream,
		}
	}
	if h.cfg.OpenLog != nil {
		if l := h.cfg.OpenLog(ctx, s); l != nil {
			return l
		}
	}
	if s.URL == "" || s.Key == "" {
		return &lineLog{log: logger.FromContext(ctx)}
	}
	s.HTTPClient = h.cfg.HTTPClient
	return logger.OpenStream(ctx, s)
}

// maxLine is the length in bytes at which a longer line is split.
const maxLine = 64 << 10

// lineLog logs each line as an event.
type lineLog struct {
	log  *zerolog.Logger
	rest []byte
}

// Write implements [io.Writer].
func (l *lineLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		switch {
		case i >= 0:
			l.event(l.rest[:i])
			l.rest = l.rest[i+1:]
		case len(l.rest) >= maxLine:
			l.event(l.rest[:maxLine])
			l.rest = l.rest[maxLine:]
		default:
			return len(p), nil
		}
	}
}

// Close implements [logger.TaskLog].
func (l *lineLog) Close(context.Context) error {
	if len(l.rest) > 0 {
		l.event(l.rest)
	}
	return nil
}

func (l *lineLog) event(line []byte) {
	l.log.Info().Str("output", strings.TrimSuffix(string(line), "\r")).Msg("task output")
}

// taskLog passes the output of a task to its log. A write to it waits only for a limited
// time.
type taskLog struct {
	*buffer
	log   logger.TaskLog
	tail  tail
	start func() // starts the delivery
	began atomic.Bool
	done  chan struct{}
}

func (h *Handler) newTaskLog(ctx context.Context, t *task.Task, set *secrets.Set) *taskLog {
	l := &taskLog{log: h.openLog(ctx, t), done: make(chan struct{}), buffer: newBuffer()}
	l.start = sync.OnceFunc(func() {
		l.began.Store(true)
		h.logs.Go(func() {
			defer close(l.done)
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(h.ended, cancel)()
			if err := l.deliver(ctx, set); err != nil {
				logger.FromContext(ctx).Warn().Err(err).Msg("a part of the log of a task is lost")
			}
		})
	})
	return l
}

// Write implements [io.Writer]. It never fails.
func (l *taskLog) Write(p []byte) (int, error) {
	l.start()
	return l.buffer.Write(p)
}

// deliver passes output to the log until close.
func (l *taskLog) deliver(ctx context.Context, set *secrets.Set) error {
	masker := secrets.NewMasker(io.MultiWriter(&l.tail, l.log), set)
	var failed error
	for {
		b, lost, ok := l.next()
		if !ok {
			break
		}
		if lost > 0 {
			b = fmt.Appendf(b, "[%d bytes of output are lost: the log took nothing for %s]\n", lost, patience)
		}
		if _, err := masker.Write(b); err != nil {
			failed = err // continue with the following output
		}
	}
	if err := masker.Close(); err != nil {
		failed = err
	}
	if err := l.log.Close(ctx); err != nil {
		return err
	}
	return failed
}

// say writes a line of the handler itself.
func (l *taskLog) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l, format+"\n", args...) // never fails
}

// close ends the log, and returns when it is delivered or the time wait has passed.
func (l *taskLog) close(wait time.Duration) {
	l.buffer.close()
	if _, ok := l.log.(*lineLog); ok && !l.began.Load() {
		return // no output: the log was never opened
	}
	l.start()
	if wait < 0 {
		return
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-l.done:
	case <-over.C:
	}
}

// last returns the last line, masked. It waits for a moment for output that is being
// delivered.
func (l *taskLog) last() string {
	l.close(patience)
	return l.tail.line()
}

// tail stores the end of its input.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// maxTail limits the length of a line in an error, in bytes.
const maxTail = 1 << 10

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-maxTail):]...)
	if len(t.b) > 4*maxTail {
		t.b = append(t.b[:0], t.b[len(t.b)-maxTail:]...)
	}
	return len(p), nil
}

// line returns the last line that is not empty.
func (t *tail) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSpace(t.b[max(0, len(t.b)-maxTail):])
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[i+1:]
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "")
}
