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
	// drainTime is how long what a program leaves running may go on writing.
	drainTime = time.Second
	// pipeSize is what every pipe takes without a reader.
	pipeSize = 4 << 10
)

// errEnough is what a writer says to have a program stopped.
var errEnough = errors.New("enough")

// exec runs cmd to its end. Both outputs are read while it runs, and its input is
// written meanwhile, so that it can wait for none of the three. A writer that fails
// stops it. Nothing of its process group is left when exec returns.
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

// drained gives what the first process has left behind the time to say the rest.
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
	ending       atomic.Bool // nobody should write any more
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

// buffers are for copy.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copy reads to the end. Once everybody who may write has been killed, it takes
// silence for the end: one that left the process group may still hold the pipe.
// A writer that fails has had enough.
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

// end returns when all that was written has been read.
func (s *stream) end() {
	s.ending.Store(true)
	_ = s.ours.SetReadDeadline(time.Now()) // wakes copy
	<-s.done
	_ = s.ours.Close()
}

// feed writes a program's input.
type feed struct {
	theirs *os.File
	ours   *os.File // nil when all is written
	rest   []byte
	done   chan struct{}
}

func newFeed(b []byte) (*feed, error) {
	if len(b) <= pipeSize { // nobody has to wait for the program to read that
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
		_, _ = f.ours.Write(f.rest) // a program need not read what it is given
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

// limited keeps what is written to it, up to a bound.
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
