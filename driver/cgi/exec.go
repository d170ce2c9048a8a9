package cgi

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/internal/process"
)

const (
	// drainTime limits the time that child processes may write after the end of the
	// program.
	drainTime = time.Second
	// pipeSize is the number of bytes that each pipe holds without a reader.
	pipeSize = 4 << 10
)

// errEnough is the error of a writer that stops the program.
var errEnough = errors.New("enough")

// exec runs cmd to its end. It reads both outputs and writes the input at the same time,
// so that cmd cannot block on one of them. If a writer fails, exec stops cmd. When exec
// returns, no process of the process group exists.
func (h *Handler) exec(ctx context.Context, cmd *exec.Cmd, stdin []byte, stdout, stderr io.Writer) (*os.ProcessState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := newFeed(stdin)
	if err != nil {
		return nil, err
	}
	out, err := newStream(stdout)
	if err != nil {
		in.abandon()
		return nil, err
	}
	errs, err := newStream(stderr)
	if err != nil {
		in.abandon()
		out.abandon()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in.theirs, out.theirs, errs.theirs
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	state, err := process.Run(ctx, cmd, h.cfg.Grace, func() {
		in.start()
		out.start(stop)
		errs.start(stop)
	}, func() { drained(out, errs) })
	if err != nil {
		in.abandon()
		out.abandon()
		errs.abandon()
		return nil, err
	}
	in.end()
	out.end()
	errs.end()
	return state, nil
}

// drained waits up to drainTime for the output of child processes that still run.
func drained(streams ...*stream) {
	over := time.NewTimer(drainTime)
	defer over.Stop()
	for _, s := range streams {
		select {
		case <-s.done:
		case <-over.C:
			return
		}
	}
}

// stream reads one output of a program to its end.
type stream struct {
	ours, theirs *os.File
	to           io.Writer
	ending       atomic.Bool // no process should write any more
	done         chan struct{}
}

func newStream(to io.Writer) (*stream, error) {
	s := &stream{to: to, done: make(chan struct{})}
	var err error
	s.ours, s.theirs, err = readingPipe()
	return s, err
}

func (s *stream) abandon() {
	_ = s.ours.Close()
	_ = s.theirs.Close()
}

func (s *stream) start(enough func()) {
	_ = s.theirs.Close()
	go s.copy(enough)
}

// buffers are the buffers of copy.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copy reads to the end. After all processes of the group have been killed, it also
// stops when no data comes: a process that left the group may hold the pipe open. If
// the writer fails, copy calls enough.
func (s *stream) copy(enough func()) {
	defer close(s.done)
	kept := buffers.Get().(*[]byte)
	defer buffers.Put(kept)
	buf := *kept
	to := s.to
	var limit time.Time
	for silent := 0; silent < 3; {
		if s.ending.Load() {
			if limit.IsZero() {
				limit = time.Now().Add(10 * drainTime)
			}
			if time.Now().After(limit) {
				return
			}
			_ = s.ours.SetReadDeadline(time.Now().Add(drainTime / 20))
		}
		n, err := s.ours.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				to = io.Discard
				enough()
			}
		}
		switch {
		case err == nil:
			silent = 0
		case errors.Is(err, os.ErrDeadlineExceeded):
			silent++
		default:
			return
		}
	}
}

// end returns when everything that was written has been read.
func (s *stream) end() {
	s.ending.Store(true)
	_ = s.ours.SetReadDeadline(time.Now()) // interrupts the read in copy
	<-s.done
	_ = s.ours.Close()
}

// feed writes the input of a program.
type feed struct {
	theirs *os.File
	ours   *os.File // nil when everything is written
	rest   []byte
	done   chan struct{}
}

func newFeed(b []byte) (*feed, error) {
	if len(b) <= pipeSize { // fits into the pipe: no goroutine needed
		theirs, err := filledPipe(b)
		return &feed{theirs: theirs}, err
	}
	theirs, ours, err := os.Pipe()
	return &feed{ours: ours, theirs: theirs, rest: b, done: make(chan struct{})}, err
}

func (f *feed) abandon() {
	_ = f.theirs.Close()
	if f.ours != nil {
		_ = f.ours.Close()
	}
}

func (f *feed) start() {
	_ = f.theirs.Close()
	if f.ours == nil {
		return
	}
	go func() {
		defer close(f.done)
		_, _ = f.ours.Write(f.rest) // a program need not read its input
		_ = f.ours.Close()
	}()
}

func (f *feed) end() {
	if f.ours == nil {
		return
	}
	_ = f.ours.Close()
	<-f.done
}

// limited stores the bytes that are written to it, up to a limit.
type limited struct {
	b    []byte
	max  int
	full bool
}

// Write implements [io.Writer].
func (l *limited) Write(p []byte) (int, error) {
	if len(l.b)+len(p) > l.max {
		l.full = true
		return 0, errEnough
	}
	l.b = append(l.b, p...)
	return len(p), nil
}
