package logger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxBatch bounds what is read from a spool at once, in bytes. It is more than
// the longest line takes, encoded.
const maxBatch = 1 << 20

var errSpoolFull = errors.New("the log is over its size limit")

// spool keeps the encoded lines of a log, newline-delimited as in the archive:
// the latest in memory, those before in a temporary file. Offsets count from
// the log's first byte, also when the beginning has been forgotten.
//
// One goroutine adds; another one reads and forgets.
type spool struct {
	maxMemory int
	max       int64
	dir       string

	// mu guards what follows. It is held while memory goes to the file: the
	// writer of the log is the one who has to wait for that.
	mu      sync.Mutex
	base    int64 // offset of the first byte that is kept
	file    *os.File
	fileLen int64
	mem     []byte
	buf     bytes.Buffer
	pos     int64
	stored  tally
	lost    tally
	err     error // why lines were lost
}

// add encodes and stores a line, or counts it as lost. A lost line leaves a gap
// in the positions.
func (s *spool) add(out string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.encode(out, now)
	n := int64(len(line))
	switch {
	case s.fileLen+int64(len(s.mem))+n > s.max:
		s.lose(n, errSpoolFull)
		return
	case len(s.mem) > 0 && len(s.mem)+len(line) > s.maxMemory:
		if err := s.spill(); err != nil {
			s.lose(n, fmt.Errorf("storing the log: %w", err))
			return
		}
	}
	s.mem = append(s.mem, line...)
	s.stored.lines++
	s.stored.bytes += n
}

// encode gives the line the next position. The result is good until the next
// call.
func (s *spool) encode(out string, now time.Time) []byte {
	s.buf.Reset()
	enc := json.NewEncoder(&s.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(Line{Level: "info", Pos: s.pos, Out: out, Time: now}); err != nil {
		// Only a time beyond the year 9999 cannot be encoded.
		panic(fmt.Sprintf("logger: encoding a line: %v", err))
	}
	s.pos++
	return s.buf.Bytes()
}

func (s *spool) lose(n int64, err error) {
	s.lost.lines++
	s.lost.bytes += n
	s.err = err
}

func (s *spool) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "dlite-log-*")
		if err != nil {
			return err
		}
		// Without a name it goes with the process. Where an open file cannot be
		// removed, close tries again.
		_ = os.Remove(f.Name())
		s.file = f
	}
	if _, err := s.file.WriteAt(s.mem, s.fileLen); err != nil {
		return err
	}
	s.fileLen += int64(len(s.mem))
	s.mem = s.mem[:0]
	return nil
}

// read returns whole lines from off on, up to maxBatch bytes; none at the end.
func (s *spool) read(off int64) ([]byte, error) {
	s.mu.Lock()
	at, f := off-s.base, s.file
	var p []byte
	if inMem := at - s.fileLen; inMem >= 0 {
		p = bytes.Clone(s.mem[inMem:min(inMem+maxBatch, int64(len(s.mem)))])
		f = nil
	} else {
		p = make([]byte, min(maxBatch, s.fileLen-at))
	}
	s.mu.Unlock()
	if f != nil {
		if _, err := f.ReadAt(p, at); err != nil {
			return nil, fmt.Errorf("reading the log back: %w", err)
		}
	}
	return p[:bytes.LastIndexByte(p, '\n')+1], nil
}

// end is the offset behind the last line.
func (s *spool) end() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base + s.fileLen + int64(len(s.mem))
}

// forget drops what is before off, but a file only as a whole.
func (s *spool) forget(off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := off - s.base - s.fileLen // bytes of mem
	if gone < 0 {
		return
	}
	s.base, s.fileLen = off, 0
	s.mem = s.mem[:copy(s.mem, s.mem[gone:])]
	if s.file != nil {
		// The space comes back with the file at the latest.
		_ = s.file.Truncate(0)
	}
}

// whole is a reader of all that is kept and its size. Nothing may be added or
// forgotten while it is read.
func (s *spool) whole() (io.Reader, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem := bytes.NewReader(s.mem)
	if s.file == nil {
		return mem, int64(len(s.mem))
	}
	return io.MultiReader(io.NewSectionReader(s.file, 0, s.fileLen), mem), s.fileLen + int64(len(s.mem))
}

// counts are the lines that were stored, those that were lost, and why.
func (s *spool) counts() (stored, lost tally, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, s.lost, s.err
}

// close frees memory and file.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mem = nil
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}
