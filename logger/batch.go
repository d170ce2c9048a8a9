package logger

import (
	"bytes"
	"io"
	"sync/atomic"
)

// batch is lines for one request.
type batch struct {
	list  []byte // as a JSON list
	next  int64  // the pos behind the last one
	tally        // bytes as they are in the spool
}

// sendBuffer is the memory of one batch after the other.
type sendBuffer struct {
	mem []byte
	// unread counts the bodies of requests that may be read still: a request's
	// end does not mean that the transport is done with its body.
	unread *atomic.Int64
}

// begin is a buffer to append newline-delimited lines to.
func (s *sendBuffer) begin() []byte {
	if s.unread == nil || s.unread.Load() > 0 {
		s.mem, s.unread = nil, new(atomic.Int64) // whoever reads the old one keeps it
	}
	return append(s.mem[:0], '[')
}

// end makes a batch of what begin began, which has at least one line.
func (s *sendBuffer) end(list []byte) batch {
	s.mem = list
	b := batch{list: list, tally: tally{bytes: int64(len(list)) - 1}}
	// No encoded line has a newline inside.
	for i := 1; ; {
		line := list[i:]
		n := bytes.IndexByte(line, '\n')
		b.lines++
		if i += n; i == len(list)-1 {
			b.next = posOf(line) + 1
			break
		}
		list[i] = ','
		i++
	}
	list[len(list)-1] = ']'
	return b
}

// body has a request read a batch.
func (s *sendBuffer) body(list []byte) bodyFunc {
	return func() (io.Reader, int64) {
		s.unread.Add(1)
		b := &batchBody{unread: s.unread}
		b.Reset(list)
		return b, int64(len(list))
	}
}

type batchBody struct {
	bytes.Reader
	unread *atomic.Int64
	closed atomic.Bool
}

func (b *batchBody) Close() error {
	if !b.closed.Swap(true) {
		b.unread.Add(-1)
	}
	return nil
}
