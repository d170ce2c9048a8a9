package cgi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// Log takes what a program writes to its standard error, masked already. Write is
// called from one goroutine at a time. One that takes nothing for 2 s loses lines,
// and holds no program up.
type Log interface {
	io.Writer
	// Close is called once, after the last Write. Its error says what was lost.
	Close(ctx context.Context) error
}

// OpenLog opens the log of a task. It must return at once: what can fail, fails in
// Write or Close, and fails no task. Both must return some time.
type OpenLog func(ctx context.Context, t *task.Task) Log

// ServiceLog sends a task's log to the log service that the task names (PROTOCOL
// 4). That of a task which names none goes, line by line, to the logger of its
// context at info level. All logs share the client; nil is one for each.
func ServiceLog(hc *http.Client) OpenLog {
	return func(ctx context.Context, t *task.Task) Log {
		l := t.Logger
		if l == nil || l.Address == "" || l.Key == "" {
			return &lineLog{log: logger.FromContext(ctx)}
		}
		return logger.OpenStream(ctx, logger.StreamConfig{
			URL: l.Address, Token: l.Token, Account: l.Account, Key: l.Key, HTTPClient: hc,
			IndirectUpload: l.IndirectUpload, TrimNewLineSuffix: l.TrimNewLineSuffix,
			SkipOpeningStream: l.SkipOpeningStream, SkipClosingStream: l.SkipClosingStream,
		})
	}
}

// maxLine is the length at which a line is cut into pieces.
const maxLine = 64 << 10

// lineLog makes an event of each line.
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

// Close implements [Log].
func (l *lineLog) Close(context.Context) error {
	if len(l.rest) > 0 {
		l.event(l.rest)
	}
	return nil
}

func (l *lineLog) event(line []byte) {
	l.log.Info().Str("output", strings.TrimSuffix(string(line), "\r")).Msg("task output")
}

// taskLog is the way of a task's output into its log. Writing to it never waits
// for long, whatever the log does.
type taskLog struct {
	*buffer
	log   Log
	tail  tail
	start func() // has what is written delivered from now on
	began atomic.Bool
	done  chan struct{}
}

func (h *Handler) openLog(ctx context.Context, t *task.Task, set *secrets.Set) *taskLog {
	l := &taskLog{log: h.cfg.OpenLog(ctx, t), done: make(chan struct{}), buffer: newBuffer()}
	l.start = sync.OnceFunc(func() {
		l.began.Store(true)
		h.logs.Go(func() {
			defer close(l.done)
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(h.ended, cancel)()
			if err := l.deliver(ctx, set); err != nil {
				logger.FromContext(ctx).Warn().Err(err).Msg("a part of a task's log is lost")
			}
		})
	})
	return l
}

// Write implements [io.Writer]. It takes everything.
func (l *taskLog) Write(p []byte) (int, error) {
	l.start()
	return l.buffer.Write(p)
}

// deliver takes what is written until close.
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
			failed = err // what follows is taken all the same
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

// say writes a line of ours.
func (l *taskLog) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l, format+"\n", args...) // it takes everything
}

// close ends the log, and returns when it is delivered or the time is over.
func (l *taskLog) close(wait time.Duration) {
	l.buffer.close()
	if _, ok := l.log.(*lineLog); ok && !l.began.Load() {
		return // most programs say nothing, and then there is nothing to close either
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

// last is the last line that was written, masked. It waits a moment for what is
// under way.
func (l *taskLog) last() string {
	l.close(patience)
	return l.tail.line()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// maxTail bounds a line in an error, in bytes.
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

// line is the last line that is not empty.
func (t *tail) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSpace(t.b[max(0, len(t.b)-maxTail):])
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[i+1:]
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "")
}
