package logservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/delegate-io/dlite/logger"
)

// Tail gives the lines of a log from its first one on, as they arrive, and ends
// when the log is closed, ctx ends or the server closes. A log that does not
// exist is waited for. Of a log that is closed it gives the archive. A caller
// that is slow delays nobody. Lines that are no line objects of PROTOCOL 4 come
// as their text.
func (s *Server) Tail(ctx context.Context, account, key string) iter.Seq[logger.Line] {
	return func(yield func(logger.Line) bool) {
		f := follower{store: s.store, id: logID{account, key}}
		for ctx.Err() == nil {
			appeared := s.store.appeared()
			u, err := f.read()
			wait := u.changed
			switch {
			case errors.Is(err, errUnknown) && !f.begun:
				wait = appeared
			case err != nil:
				return
			}
			for _, l := range u.lines {
				if !yield(decode(l.raw)) {
					return
				}
			}
			if u.end {
				return
			}
			select {
			case <-wait:
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
// the store, so a reader that goes away or stands still costs nothing there.
type follower struct {
	store *store
	id    logID
	next  int64 // number of the next line
	begun bool
	run   int
}

// update is what is new in a log.
type update struct {
	lines   []line // pos is the line's number
	end     bool   // nothing will follow
	changed <-chan struct{}
}

// read gives what is new since the last call.
func (f *follower) read() (update, error) {
	v, err := f.store.look(f.id)
	if err != nil {
		return update{}, err
	}
	joined := !f.begun
	if f.begun && v.run != f.run {
		return update{end: true}, nil // another log by now
	}
	f.begun, f.run = true, v.run

	u := update{end: !v.open, changed: v.changed}
	if joined && !v.open && v.hasBlob {
		u.lines = archived(v.blob, f.next)
		return u, nil
	}
	from := min(f.next, int64(len(v.lines)))
	for i, raw := range v.lines[from:] {
		u.lines = append(u.lines, line{raw: raw, pos: from + int64(i)})
	}
	f.next = max(f.next, int64(len(v.lines)))
	return u, nil
}

// archived are the lines of an archive from number from on. An archive may lack
// its beginning, so a line's number is its pos, where it has one.
func archived(blob []byte, from int64) []line {
	var out []line
	number := int64(-1)
	for raw := range bytes.Lines(blob) {
		raw = bytes.TrimRight(raw, "\r\n")
		if len(raw) == 0 {
			continue
		}
		var l struct{ Pos *int64 }
		number++
		if json.Unmarshal(raw, &l) == nil && l.Pos != nil {
			number = *l.Pos
		}
		if number >= from {
			out = append(out, line{raw: raw, pos: number})
		}
	}
	return out
}
