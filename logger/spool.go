package logger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

const (
	// maxBatch bounds what is read from a spool at once, in bytes. It is more
	// than the longest line takes, encoded.
	maxBatch = 1 << 20
	// maxSegment bounds one file of a spool, in bytes: what is sent is given back
	// to the disk in pieces of that size.
	maxSegment = 64 << 20
)

var errSpoolFull = errors.New("the log is over its size limit")

// spool keeps the encoded lines of a log, newline-delimited as in the archive:
// the latest in memory, those before in temporary files. Offsets count from the
// log's first byte, also when the beginning has been given up.
//
// It keeps what was sent as well, for the archive and for a log service that
// loses it, until the room is needed: then lines that the service has make room
// for lines that it has not.
//
// One goroutine adds; another one reads and acknowledges.
type spool struct {
	maxMemory int
	max       int64
	create    func() (spoolFile, error)

	// mu guards what follows. It is held while memory goes to a file: the writer
	// of the log is the one who has to wait for that.
	mu       sync.Mutex
	base     int64     // offset of the first byte that is kept
	files    []segment // oldest first
	memStart int64     // offset of mem
	mem      []byte
	pos      int64
	acked    int64         // offset up to which the log service has every line
	progress chan struct{} // closed when acked grows
	stored   tally
	lost     tally
	err      error // why lines were lost
}

// segment is a file and the offset of its first byte.
type segment struct {
	f          spoolFile
	from, size int64
}

// spoolFile is an os.File, or one that fails on purpose.
type spoolFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
}

func newSpool(cfg *StreamConfig) *spool {
	dir := cfg.TempDir
	return &spool{
		maxMemory: cfg.MaxMemory, max: cfg.MaxSpool, progress: make(chan struct{}),
		create: func() (spoolFile, error) {
			f, err := os.CreateTemp(dir, "dlite-log-*")
			if err != nil {
				return nil, err
			}
			// Without a name it goes with the process. Where an open file cannot
			// be removed, close tries again.
			_ = os.Remove(f.Name())
			return f, nil
		},
	}
}

// add encodes and stores a line. When there is no room for it, it stores
// nothing and says why; the line may be added again when moved is closed, or
// else has to be lost.
func (s *spool) add(out, now []byte) (moved <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.mem)
	s.mem = appendLine(s.mem, s.pos, out, now)
	n := int64(len(s.mem) - before)
	if err := s.fit(before); err != nil {
		s.mem = s.mem[:len(s.mem)-int(n)]
		return s.progress, err
	}
	s.pos++
	s.stored.lines++
	s.stored.bytes += n
	return nil, nil
}

// fit makes room for what was appended to mem behind old.
func (s *spool) fit(old int) error {
	if s.end()-s.base > s.max {
		old -= s.reclaim()
	}
	if s.end()-s.base > s.max {
		return errSpoolFull
	}
	if old <= 0 || len(s.mem) <= s.maxMemory {
		return nil
	}
	err := s.spill(old)
	if err != nil && s.reclaim() > 0 {
		return nil // the lines that were in the way are gone
	}
	if err != nil {
		err = s.spill(old) // a file that was given up made room on the disk
	}
	if err != nil {
		return fmt.Errorf("storing the log: %w", err)
	}
	return nil
}

// reclaim gives up whole files that the log service has, and when there is no
// file left, what it has of mem. It returns how much of mem went.
func (s *spool) reclaim() int {
	for len(s.files) > 0 && s.files[0].from+s.files[0].size <= s.acked {
		discard(s.files[0].f)
		s.base = s.files[0].from + s.files[0].size
		s.files = s.files[1:]
	}
	gone := int(s.acked - s.memStart)
	if len(s.files) > 0 || gone <= 0 {
		return 0
	}
	s.mem = s.mem[:copy(s.mem, s.mem[gone:])]
	s.memStart += int64(gone)
	s.base = s.memStart
	return gone
}

// spill moves the first n bytes of mem to a file.
func (s *spool) spill(n int) error {
	last := len(s.files) - 1
	if last < 0 || s.files[last].size >= min(maxSegment, s.max/8) {
		f, err := s.create()
		if err != nil {
			return err
		}
		s.files = append(s.files, segment{f: f, from: s.memStart})
		last++
	}
	seg := &s.files[last]
	if _, err := seg.f.WriteAt(s.mem[:n], seg.size); err != nil {
		return err
	}
	seg.size += int64(n)
	s.memStart += int64(n)
	s.mem = s.mem[:copy(s.mem, s.mem[n:])]
	return nil
}

// lose counts a line that could not be added. It leaves a gap in the positions.
func (s *spool) lose(out, now []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost.lines++
	s.lost.bytes += int64(len(appendLine(nil, s.pos, out, now)))
	s.pos++
	s.err = err
}

// read appends whole lines from off on to dst, at least one and up to limit
// bytes; none at the end. What was given up meanwhile is left out: the first line
// may be behind off. The second result is the offset of the first line.
func (s *spool) read(dst []byte, off int64, limit int) ([]byte, int64, error) {
	s.mu.Lock()
	off = max(off, s.base)
	if at := off - s.memStart; at >= 0 {
		dst = append(dst, wholeLines(s.mem[at:], limit)...)
		s.mu.Unlock()
		return dst, off, nil
	}
	i := len(s.files) - 1
	for s.files[i].from > off {
		i--
	}
	seg := s.files[i]
	s.mu.Unlock()
	// Files are given up only by the writer, and only where the reader has been.
	n := int(min(maxBatch, seg.from+seg.size-off))
	dst = slices.Grow(dst, n)
	p := dst[len(dst) : len(dst)+n]
	if _, err := seg.f.ReadAt(p, off-seg.from); err != nil {
		return dst, off, fmt.Errorf("reading the log back: %w", err)
	}
	return dst[:len(dst)+len(wholeLines(p, limit))], off, nil
}

// wholeLines are the lines of p that end within limit bytes, but at least one.
func wholeLines(p []byte, limit int) []byte {
	if n := bytes.LastIndexByte(p[:min(limit, len(p))], '\n') + 1; n > 0 {
		return p[:n]
	}
	return p[:bytes.IndexByte(p, '\n')+1]
}

// size is the offset behind the last line.
func (s *spool) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end()
}

func (s *spool) end() int64 { return s.memStart + int64(len(s.mem)) }

// ack says that the log service has every line before off.
func (s *spool) ack(off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off > s.acked {
		close(s.progress)
		s.progress = make(chan struct{})
	}
	s.acked = off
}

// intact tells whether nothing was given up.
func (s *spool) intact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base == 0
}

// whole is a reader of all that is kept and its size. Nothing may be added
// while it is read.
func (s *spool) whole() (io.Reader, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []io.Reader
	for _, seg := range s.files {
		parts = append(parts, io.NewSectionReader(seg.f, 0, seg.size))
	}
	return io.MultiReader(append(parts, bytes.NewReader(s.mem))...), s.end() - s.base
}

// counts are the lines that were stored, those that were lost, and why.
func (s *spool) counts() (stored, lost tally, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, s.lost, s.err
}

// close frees memory and files.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mem = nil
	for _, seg := range s.files {
		discard(seg.f)
	}
	s.files = nil
}

func discard(f spoolFile) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
