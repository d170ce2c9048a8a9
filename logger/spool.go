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
	// maxBatch limits one read of a spool, in bytes. An encoded line is shorter.
	maxBatch = 1 << 20
	// maxSegment limits one file of a spool, in bytes. The spool frees disk space file
	// by file.
	maxSegment = 64 << 20
)

var errSpoolFull = errors.New("the log is over its size limit")

// spool stores the encoded lines of a log, newline-delimited as in the archive. The
// latest lines are in memory, and older lines in temporary files. Offsets count from
// the first byte of the log, also after the beginning was removed.
//
// The spool keeps sent lines for the archive, and for a log service that loses them.
// If it needs the space, it removes lines that the service has acknowledged.
//
// One goroutine adds lines. Another goroutine reads and acknowledges them.
type spool struct {
	maxMemory int
	max       int64
	create    func(from int64) (spoolFile, error)
	log       *keptLog // nil without a Deliverer

	// mu guards the fields below. It is held while memory is written to a file: the
	// writer of the log must wait for that.
	mu       sync.Mutex
	base     int64     // offset of the first stored byte
	files    []segment // the oldest first
	memStart int64     // offset of mem
	mem      []byte
	pos      int64
	acked    int64         // offset after the last acknowledged line
	progress chan struct{} // closed when acked grows
	stored   tally
	lost     tally
	err      error // reason of the latest loss
	kept     bool  // all lines are in files that a later process finds
	closed   bool
}

// segment is a file with the offset of its first byte.
type segment struct {
	f          spoolFile
	from, size int64
}

// spoolFile is an os.File, or a failing file of a test.
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
		create: func(int64) (spoolFile, error) {
			f, err := os.CreateTemp(dir, "dlite-log-*")
			if err != nil {
				return nil, err
			}
			// A file without a name ends with the process. If the system cannot remove
			// an open file, close removes it.
			_ = os.Remove(f.Name())
			return f, nil
		},
	}
}

// add encodes and stores a line. If there is no space, it returns an error and a
// channel that is closed when the service acknowledges lines. The caller then adds
// the line again, or calls lose.
func (s *spool) add(out, now []byte) (moved <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.mem)
	s.mem = appendLine(s.mem, s.pos, out, now)
	n := int64(len(s.mem) - before)
	if err := s.makeSpace(before); err != nil {
		s.mem = s.mem[:len(s.mem)-int(n)]
		return s.progress, err
	}
	s.pos++
	s.stored.Lines++
	s.stored.Bytes += n
	if s.kept && len(s.mem) >= s.maxMemory/2 {
		s.flushKept()
	}
	return nil, nil
}

// makeSpace makes space for the line that was appended to mem after old.
func (s *spool) makeSpace(old int) error {
	if s.end()-s.base > s.max {
		old -= s.removeAcknowledged()
	}
	if s.end()-s.base > s.max {
		return errSpoolFull
	}
	if old <= 0 || len(s.mem) <= s.maxMemory {
		return nil
	}
	err := s.moveToFile(old)
	if err != nil && s.removeAcknowledged() > 0 {
		return nil // the remaining lines fit into memory
	}
	if err != nil {
		err = s.moveToFile(old) // a removed file may have freed disk space
	}
	if err != nil {
		return fmt.Errorf("storing the log: %w", err)
	}
	return nil
}

// removeAcknowledged removes whole files of acknowledged lines, and then the
// acknowledged part of mem. It returns the number of bytes removed from mem.
func (s *spool) removeAcknowledged() int {
	for len(s.files) > 0 && s.files[0].from+s.files[0].size <= s.acked {
		discard(s.files[0].f)
		s.base = s.files[0].from + s.files[0].size
		s.files = s.files[1:]
	}
	removed := int(s.acked - s.memStart)
	if len(s.files) > 0 || removed <= 0 {
		return 0
	}
	s.mem = s.mem[:copy(s.mem, s.mem[removed:])]
	s.memStart += int64(removed)
	s.base = s.memStart
	return removed
}

// moveToFile moves the first n bytes of mem to a file.
func (s *spool) moveToFile(n int) error {
	last := len(s.files) - 1
	if last < 0 || s.files[last].size >= min(maxSegment, s.max/8) {
		f, err := s.create(s.memStart)
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

// lose counts a line that could not be added. Its position stays unused.
func (s *spool) lose(out, now []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost.Lines++
	s.lost.Bytes += int64(len(appendLine(nil, s.pos, out, now)))
	s.pos++
	s.err = err
}

// read appends whole lines from off on to dst: at least one line, up to limit bytes,
// and none at the end of the log. It skips lines that were removed. The second
// result is the offset of the first line.
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
	// The writer removes only files that the reader has acknowledged.
	n := int(min(maxBatch, seg.from+seg.size-off))
	dst = slices.Grow(dst, n)
	p := dst[len(dst) : len(dst)+n]
	if _, err := seg.f.ReadAt(p, off-seg.from); err != nil {
		return dst, off, fmt.Errorf("reading the log back: %w", err)
	}
	return dst[:len(dst)+len(wholeLines(p, limit))], off, nil
}

// wholeLines returns the lines of p that end within limit bytes, at least one.
func wholeLines(p []byte, limit int) []byte {
	if n := bytes.LastIndexByte(p[:min(limit, len(p))], '\n') + 1; n > 0 {
		return p[:n]
	}
	return p[:bytes.IndexByte(p, '\n')+1]
}

// size returns the offset after the last line.
func (s *spool) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end()
}

func (s *spool) end() int64 { return s.memStart + int64(len(s.mem)) }

// ack records that the log service has all lines before off.
func (s *spool) ack(off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off > s.acked {
		close(s.progress)
		s.progress = make(chan struct{})
	}
	s.acked = off
}

// intact reports whether no line was removed.
func (s *spool) intact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base == 0
}

// whole returns a reader of all stored lines and their size. No line may be added
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

// counts returns the stored lines, the lost lines, and the reason of the loss.
func (s *spool) counts() (stored, lost tally, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, s.lost, s.err
}

// close frees memory and files.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.mem = true, nil
	for _, seg := range s.files {
		discard(seg.f)
	}
	s.files = nil
	if s.log != nil {
		s.log.release()
	}
}

func discard(f spoolFile) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
