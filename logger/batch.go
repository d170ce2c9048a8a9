package logger

import (
	"bytes"
	"io"
	"sync/atomic"
)

// batch holds the lines of one request.
type batch struct {
	list  []byte // as a JSON list
	next  int64  // the position after the last line
	tally        // lines, and their bytes in the spool
}

// sendBuffer is the memory of successive batches.
type sendBuffer struct {
	mem []byte
	// unread counts the request bodies that the transport may still read: it may do
	// so after the end of the request.
	unread *atomic.Int64
}

// begin returns a buffer to which the caller appends newline-delimited lines.
func (s *sendBuffer) begin() []byte {
	if s.unread == nil || s.unread.Load() > 0 {
		s.mem, s.unread = nil, new(atomic.Int64) // the transport may still read the old memory
	}
	return append(s.mem[:0], '[')
}

// end makes a batch of a buffer of begin.
func (s *sendBuffer) end(list []byte) batch {
	if len(list) == 1 {
		list = append(list, ']')
		s.mem = list
		return batch{list: list}
	}
	s.mem = list
	b := batch{list: list, tally: tally{Bytes: int64(len(list)) - 1}}
	// An encoded line contains no newline.
	for i := 1; ; {
		line := list[i:]
		n := bytes.IndexByte(line, '\n')
		b.Lines++
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

// body returns the function that opens a batch as a request body.
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
