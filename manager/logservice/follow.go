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
)

// comeBack is after which time Tail asks again for streams that were away.
const comeBack = time.Second

// Tail gives the lines of a log from its first one on, as they arrive, and ends
// when the log is closed, ctx ends or the server closes. A log that does not
// exist is waited for. Of a log that is closed it gives the archive. A caller
// that is slow delays nobody. Lines that are no line objects of PROTOCOL 4 come
// as their text.
func (s *Server) Tail(ctx context.Context, account, key string) iter.Seq[logger.Line] {
	return func(yield func(logger.Line) bool) {
		f := follower{store: s.store, id: ID{account, key}}
		defer f.close()
		for ctx.Err() == nil {
			u, err := f.read(ctx)
			if errors.Is(err, ErrUnavailable) {
				select {
				case <-time.After(comeBack):
				case <-ctx.Done():
				}
				continue
			}
			if err != nil && (f.begun || !errors.Is(err, ErrUnknown)) {
				return
			}
			for _, l := range u.lines {
				if !yield(decode(l.Raw)) {
					return
				}
			}
			if u.end {
				return
			}
			if u.more {
				continue
			}
			select {
			case <-u.changed:
			case <-ctx.Done():
			}
		}
	}
}

// decode reads a line as far as it can be read.
func decode(raw json.RawMessage) logger.Line {
	var l struct {
		Level string
		Pos   int64
		Out   *string
		Time  json.RawMessage
		Args  map[string]any
	}
	// What does not fit is left out; the rest is decoded all the same.
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

// follower reads a log piece by piece. It is one reader's and holds nothing in
// the store, so a reader that goes away or stands still delays nobody.
type follower struct {
	store *store
	id    ID
	next  int64 // number of the next line
	begun bool
	run   int64
	old   *archived // what is read instead of a stream
}

// update is what is new in a log.
type update struct {
	lines   []Line          // Pos is the line's number
	end     bool            // nothing will follow
	more    bool            // there is more already
	changed <-chan struct{} // closed when there is
}

// close frees what the follower reads from.
func (f *follower) close() {
	if f.old != nil {
		_ = f.old.r.Close()
	}
}

// read gives what is new since the last call.
func (f *follower) read(ctx context.Context) (update, error) {
	if f.old != nil {
		return f.old.read(f.next)
	}
	changed := f.store.streams.Watch(f.id)
	st, err := f.store.streams.State(ctx, f.id)
	// An archive that is complete is what counts for who comes late.
	if !f.begun && (errors.Is(err, ErrUnknown) || err == nil && !st.Open && !st.pending()) {
		r, archiveErr := f.store.archive.open(ctx, f.id)
		if archiveErr == nil {
			f.begun, f.old = true, &archived{r: r, lines: bufio.NewReader(r), number: -1}
			return f.old.read(f.next)
		}
		if !errors.Is(archiveErr, ErrUnknown) {
			return update{}, archiveErr
		}
	}
	if err != nil {
		return update{changed: changed}, err
	}
	if f.begun && st.Run != f.run {
		return update{end: true}, nil // another log by now
	}
	f.begun, f.run = true, st.Run
	u := update{changed: changed}
	if f.next < st.Lines {
		if u.lines, err = f.store.streams.Read(ctx, f.id, st.Run, f.next); err != nil {
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

// archived reads an archive's lines. It may lack its beginning, so the number of
// the first line is its pos, where it has one. The others follow, whatever their
// writers' pos are: those of several writers begin anew.
type archived struct {
	r      io.ReadCloser
	lines  *bufio.Reader
	number int64
}

// maxArchiveLine bounds a line of an archive: any bytes may be uploaded.
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
				u.lines = append(u.lines, Line{Raw: text, Pos: a.number})
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

// line is the next line, or the beginning of one that is too long.
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
