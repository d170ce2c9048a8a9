package logservice

import (
	"container/list"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// logID names a log.
type logID struct{ account, key string }

// record is what is known of one log. Lines, once they are in it, do not change,
// and neither does an archive: both may be read without the store's lock.
type record struct {
	id      logID
	open    bool
	run     int // how often the stream began anew
	lines   []json.RawMessage
	size    int64            // of lines and writers
	writers map[string]int64 // by writer, the least pos that its next line has
	blob    []byte
	hasBlob bool
	oldBlob bool // blob is of an earlier run
	touched time.Time
	changed chan struct{} // closed when there is something new
	place   *list.Element // in the store's order
}

// What a line and a writer take beyond their bytes.
const (
	lineCost   = 24
	writerCost = 64
)

// store keeps all logs. Its lock is never held over I/O.
type store struct {
	cfg *Config

	mu      sync.Mutex // guards what follows, and every record
	logs    map[logID]*record
	order   *list.List    // of *record, the one that was touched longest ago first
	total   int64         // bytes of all lines and blobs
	swept   time.Time     // when shutIdle last looked
	created chan struct{} // closed when there is a new log
	closed  bool
}

func newStore(cfg *Config) *store {
	return &store{cfg: cfg, logs: map[logID]*record{}, order: list.New(), created: make(chan struct{})}
}

var (
	errClosed  = &httpError{http.StatusServiceUnavailable, "the log service is closed"}
	errUnknown = &httpError{http.StatusNotFound, "no such log"}
	errFull    = &httpError{http.StatusInsufficientStorage, "the log service is full"}
)

// start opens a stream. One that is open already stays as it is, and so does one
// that this writer has closed: the call is a repetition. A stream that is closed
// begins anew otherwise; its archive stays until there is another.
func (s *store) start(id logID, writer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.touch(id)
	if err != nil {
		return err
	}
	if _, known := r.writers[writer]; r.open || known {
		return nil
	}
	if !r.hasBlob && len(r.lines) > 0 {
		r.blob, r.hasBlob = join(r.lines), true
		s.total += int64(len(r.blob))
	}
	s.total -= r.size
	r.lines, r.size, r.writers = nil, 0, nil
	r.oldBlob = r.hasBlob
	r.open = true
	r.run++
	if writer != "" {
		r.writers = map[string]int64{writer: 0}
	}
	s.announce(r)
	return nil
}

// line is a line as it was sent and its pos.
type line struct {
	raw json.RawMessage
	pos int64
}

// append adds lines to a stream, which it opens when nobody did. It takes all
// of the lines or none, but for those that the writer has sent before.
func (s *store) append(id logID, writer string, lines []line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.touch(id)
	if err != nil {
		return err
	}
	next, known := r.writers[writer]
	var fresh []json.RawMessage
	var size int64
	if writer != "" && !known {
		size += writerCost
	}
	for _, l := range lines {
		if writer != "" {
			if l.pos < next {
				continue
			}
			next = l.pos + 1
		}
		fresh = append(fresh, l.raw)
		size += int64(len(l.raw)) + lineCost
	}
	if len(fresh) == 0 && len(lines) > 0 {
		return nil // the stream may be closed by now, and stays so
	}
	if r.size+size > s.cfg.MaxStream {
		err = &httpError{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the stream would be over the limit of %d bytes", s.cfg.MaxStream)}
	} else {
		err = s.reserve(r, size)
	}
	if err != nil {
		s.discard(r)
		return err
	}
	r.open = true // a log that was closed goes on
	r.lines = append(r.lines, fresh...)
	r.size += size
	if writer != "" {
		if r.writers == nil {
			r.writers = map[string]int64{}
		}
		r.writers[writer] = next
	}
	s.announce(r)
	return nil
}

// finish closes a stream. Its content is the archive from then on when snapshot
// says so or nothing was uploaded.
func (s *store) finish(id logID, snapshot bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	r := s.logs[id]
	if r == nil {
		return errUnknown
	}
	s.shut(r, snapshot)
	return nil
}

func (s *store) shut(r *record, snapshot bool) {
	if r.hasBlob && len(r.lines) > 0 && (snapshot || r.oldBlob) {
		s.total -= int64(len(r.blob))
		r.blob, r.hasBlob = nil, false
	}
	r.open, r.oldBlob = false, false
	s.announce(r)
}

// upload sets a log's archive.
func (s *store) upload(id logID, blob []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.touch(id)
	if err != nil {
		return err
	}
	if err := s.reserve(r, int64(len(blob)-len(r.blob))); err != nil {
		s.discard(r)
		return err
	}
	r.blob, r.hasBlob, r.oldBlob = blob, true, false
	s.announce(r)
	return nil
}

// view is a log at one moment.
type view struct {
	open    bool
	run     int
	lines   []json.RawMessage
	blob    []byte
	hasBlob bool
	changed <-chan struct{}
}

// look is the log as it is now.
func (s *store) look(id logID) (view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return view{}, errClosed
	}
	r := s.logs[id]
	if r == nil {
		return view{}, errUnknown
	}
	return view{open: r.open, run: r.run, lines: r.lines, blob: r.blob, hasBlob: r.hasBlob, changed: r.changed}, nil
}

// appeared is closed when the next log comes to exist, or the store closes.
func (s *store) appeared() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.created
}

// touch is the record of id, made when there is none. Every change goes through
// it, so it is also where streams that nobody writes to are closed.
func (s *store) touch(id logID) (*record, error) {
	if s.closed {
		return nil, errClosed
	}
	now := s.cfg.Now()
	s.shutIdle(now)
	r := s.logs[id]
	if r == nil {
		if len(s.logs) >= s.cfg.MaxLogs && !s.evict(nil) {
			return nil, errFull
		}
		r = &record{id: id, changed: make(chan struct{})}
		r.place = s.order.PushBack(r)
		s.logs[id] = r
		close(s.created)
		s.created = make(chan struct{})
	}
	r.touched = now
	s.order.MoveToBack(r.place)
	return r, nil
}

// shutIdle looks through the logs now and then.
func (s *store) shutIdle(now time.Time) {
	if now.Sub(s.swept) < s.cfg.IdleTimeout/10 {
		return
	}
	s.swept = now
	for e := s.order.Front(); e != nil; e = e.Next() {
		r := e.Value.(*record)
		if now.Sub(r.touched) < s.cfg.IdleTimeout {
			return
		}
		if r.open {
			s.shut(r, false)
		}
	}
}

// reserve makes room for size more bytes of r.
func (s *store) reserve(r *record, size int64) error {
	for s.total+size > s.cfg.MaxTotal {
		if !s.evict(r) {
			return errFull
		}
	}
	s.total += size
	return nil
}

// evict forgets the log that is closed and was touched longest ago, but not keep.
func (s *store) evict(keep *record) bool {
	for e := s.order.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*record); !r.open && r != keep {
			s.remove(r)
			return true
		}
	}
	return false
}

func (s *store) remove(r *record) {
	s.total -= r.size + int64(len(r.blob))
	s.order.Remove(r.place)
	delete(s.logs, r.id)
	r.open = false
	close(r.changed)
	r.changed = nil
}

// discard forgets a log that was made for a request that then failed.
func (s *store) discard(r *record) {
	if !r.open && len(r.lines) == 0 && !r.hasBlob {
		s.remove(r)
	}
}

// announce wakes all readers of r.
func (s *store) announce(r *record) {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, r := range s.logs {
		s.remove(r)
	}
	close(s.created) // and stays so: nobody waits for a log any more
}

// join is an archive of lines.
func join(lines []json.RawMessage) []byte {
	var out []byte
	for _, l := range lines {
		out = append(append(out, l...), '\n')
	}
	return out
}
