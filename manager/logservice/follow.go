package logservice

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// comeBack is the delay before Tail retries when the store of streams is unavailable.
const comeBack = time.Second

// Tail iterates over the lines of a log from the first line, as they arrive. It ends
// when the log is closed, when ctx ends or when the server closes. If the log does not
// exist, Tail waits for it. If the log is closed, Tail reads the archive. A slow caller
// does not delay writers or other readers. A line that is not a line object of
// docs/protocol.md, section 4, is returned as its text.
func (s *Server) Tail(ctx context.Context, account, key string) iter.Seq[logger.Line] {
	return func(yield func(logger.Line) bool) {
		f := follower{store: s.store, id: livelog.ID{Account: account, Key: key}}
		defer f.close()
		for ctx.Err() == nil {
			err := f.each(ctx, true, func(l livelog.Line) bool { return yield(decode(l.Raw)) })
			if !errors.Is(err, livelog.ErrUnavailable) {
				return
			}
			select {
			case <-time.After(comeBack):
			case <-ctx.Done():
			}
		}
	}
}

// Lines iterates over the lines of a log from the line with the number from; 0 is the first
// line. The Pos of a line is its number. With follow it is like Tail, but yields the error of
// the log service, for example [ErrUnavailable], as its last item. A later call may continue
// after the last line. Without follow it ends with the last line that exists, and yields
// nothing for a log that does not exist.
func (s *Server) Lines(ctx context.Context, account, key string, from int64, follow bool) iter.Seq2[logger.Line, error] {
	return func(yield func(logger.Line, error) bool) {
		f := follower{store: s.store, id: livelog.ID{Account: account, Key: key}, next: from}
		defer f.close()
		err := f.each(ctx, follow, func(l livelog.Line) bool {
			line := decode(l.Raw)
			line.Pos = l.Pos
			return yield(line, nil)
		})
		if err != nil {
			yield(logger.Line{}, err)
		}
	}
}

// each calls yield for each line that is new since the last call, until yield returns false,
// ctx ends or the log has ended. Without follow it also ends if no more lines are available.
func (f *follower) each(ctx context.Context, follow bool, yield func(livelog.Line) bool) error {
	for ctx.Err() == nil {
		u, err := f.read(ctx)
		switch {
		case err == nil || errors.Is(err, livelog.ErrUnknown) && !f.begun && follow:
		case errors.Is(err, livelog.ErrUnknown) || ctx.Err() != nil:
			return nil
		default:
			return err
		}
		for _, l := range u.lines {
			if !yield(l) {
				return nil
			}
		}
		if u.end || !u.more && !follow {
			return nil
		}
		if u.more {
			continue
		}
		select {
		case <-u.changed:
		case <-u.uploaded:
		case <-ctx.Done():
		}
	}
	return nil
}

// decode decodes the members of a line that have the expected types.
func decode(raw json.RawMessage) logger.Line {
	var l struct {
		Level string
		Pos   int64
		Out   *string
		Time  json.RawMessage
		Args  map[string]any
	}
	// Unmarshal skips members with another type and decodes the others.
	_ = json.Unmarshal(raw, &l)
	if l.Out == nil {
		return logger.Line{Level: "info", Out: string(raw) + "\n"}
	}
	line := logger.Line{Level: l.Level, Pos: l.Pos, Out: *l.Out}
	var t time.Time
	if json.Unmarshal(l.Time, &t) == nil {
		line.Time = t
	}
	for k, v := range l.Args {
		if text, ok := v.(string); ok {
			if line.Args == nil {
				line.Args = map[string]string{}
			}
			line.Args[k] = text
		}
	}
	return line
}

// follower reads a log in pieces for one reader. It holds nothing in the store, so a
// reader that disconnects or stalls delays no other call.
type follower struct {
	store *store
	id    livelog.ID
	next  int64 // number of the next line
	begun bool
	run   int64
	old   *archived // read instead of a stream, if set
}

// update contains new lines of a log.
type update struct {
	lines    []livelog.Line  // Pos is the line's number
	end      bool            // no lines will follow
	more     bool            // more lines are available now
	changed  <-chan struct{} // closed when more lines are available
	uploaded <-chan struct{} // of a log without a stream: closed when an archive is uploaded
}

// close closes the archive that the follower reads.
func (f *follower) close() {
	if f.old != nil {
		_ = f.old.r.Close()
	}
}

// read returns the lines that are new since the last call.
func (f *follower) read(ctx context.Context) (update, error) {
	if f.old != nil {
		return f.old.read(f.next)
	}
	changed := f.store.streams.Watch(f.id)
	var uploaded <-chan struct{}
	if !f.begun {
		uploaded = f.store.watchUpload(f.id)
	}
	st, err := f.store.streams.State(ctx, f.id)
	// If the archive is complete, a new reader reads it instead of the stream. A slow reader
	// continues with it when the stream is gone.
	if errors.Is(err, livelog.ErrUnknown) || !f.begun && err == nil && !st.Open && !st.Pending() {
		r, archiveErr := f.store.archive.open(ctx, f.id)
		if archiveErr == nil {
			f.begun, f.old = true, &archived{r: r, lines: bufio.NewReader(r), number: -1}
			return f.old.read(f.next)
		}
		if !errors.Is(archiveErr, livelog.ErrUnknown) {
			return update{}, archiveErr
		}
	}
	if err != nil {
		return update{changed: changed, uploaded: uploaded}, err
	}
	if f.begun && st.Run != f.run {
		return update{end: true}, nil // a new run has replaced the stream
	}
	f.begun, f.run = true, st.Run
	u := update{changed: changed}
	if f.next < st.Lines {
		u.lines, err = f.store.streams.Read(ctx, f.id, st.Run, f.next)
		if errors.Is(err, livelog.ErrUnknown) { // the stream was removed just now
			return update{more: true}, nil
		}
		if err != nil {
			return u, err
		}
	}
	if n := len(u.lines); n > 0 {
		f.next = u.lines[n-1].Pos + 1
	}
	u.more = f.next < st.Lines
	u.end = !u.more && !st.Open
	return u, nil
}

// archived reads the lines of an archive. An archive may lack its first lines, so the
// number of its first line is the pos of that line, if it has one. The following lines
// are numbered consecutively: with several writers, their pos restart.
type archived struct {
	r      io.ReadCloser
	lines  *bufio.Reader
	number int64
}

// maxArchiveLine bounds a line of an archive, in bytes, because a client may upload any
// bytes.
const maxArchiveLine = 1 << 20

func (a *archived) read(from int64) (update, error) {
	u := update{more: true}
	for size := 0; size < linesPerFrame; {
		raw, err := a.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return u, err
		}
		if text := bytes.TrimRight(raw, "\r\n"); len(text) > 0 {
			var l struct{ Pos *int64 }
			a.number++
			if a.number == 0 && json.Unmarshal(text, &l) == nil && l.Pos != nil {
				a.number = *l.Pos
			}
			if a.number >= from {
				u.lines = append(u.lines, livelog.Line{Raw: text, Pos: a.number})
				size += len(text)
			}
		}
		if err != nil {
			u.end, u.more = true, false
			return u, nil
		}
	}
	return u, nil
}

// line returns the next line. It returns a line that is too long in parts.
func (a *archived) line() ([]byte, error) {
	var out []byte
	for {
		part, err := a.lines.ReadSlice('\n')
		out = append(out, part...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(out) >= maxArchiveLine {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
			return out, err
		}
	}
}
