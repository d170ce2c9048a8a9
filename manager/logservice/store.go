package logservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// linger is the time for which a stream stays after its archive is complete, for
	// slow readers and for repeated requests.
	linger = 10 * time.Minute
	// syncEvery is the interval of syncs: the maximum age of lines that a power failure
	// can destroy.
	syncEvery = time.Second
	// tendEvery is the interval at which the store looks for due work.
	tendEvery = time.Minute
	// ageEvery is the interval at which the store looks for expired archives.
	ageEvery = time.Hour
	// archivers is the number of streams that are archived at the same time.
	archivers = 4
	// claimEvery is the interval at which the store retries to claim an archive that
	// another server has claimed.
	claimEvery = 100 * time.Millisecond
)

var errFull = &httpError{http.StatusInsufficientStorage, "the log service is full"}

// store contains streams and archives and copies complete streams to the archive.
type store struct {
	cfg     *Config
	streams Streams
	shared  Shared // equals streams if other servers share them, otherwise nil
	archive *archive
	// lazy means that a stream without an upload serves as its own archive, in memory.
	lazy bool

	ctx     context.Context //nolint:containedctx // the background's, ended by close
	stop    context.CancelFunc
	work    sync.WaitGroup
	kick    chan struct{} // signals due work; capacity 1
	evicter chan struct{} // contains one token; its holder may evict

	mu    sync.Mutex      // guards the following fields
	busy  map[ID]*turn    // locks of the archives
	due   map[ID]struct{} // streams to archive
	stuck bool            // evicting did not help, and no log was completed since
	aged  time.Time       // time of the last age
	tends time.Time       // time of the last tend
}

// turn is the lock of one archive. users counts its holder and waiters.
type turn struct {
	token chan struct{}
	users int
}

func newStore(cfg *Config, streams Streams, a *archive, lazy bool) *store {
	ctx, stop := context.WithCancel(context.Background())
	s := &store{
		cfg: cfg, streams: streams, archive: a, lazy: lazy, ctx: ctx, stop: stop,
		kick: make(chan struct{}, 1), evicter: make(chan struct{}, 1),
		busy: map[ID]*turn{}, due: map[ID]struct{}{}, tends: cfg.Now(),
	}
	s.evicter <- struct{}{}
	s.shared, _ = streams.(Shared)
	if !lazy {
		for id, st := range streams.All(ctx) {
			if st.pending() {
				s.due[id] = struct{}{}
			}
		}
	}
	if cfg.Archive == "" {
		s.age(ctx) // age is fast on files; afterwards the limits apply from the first request
	}
	s.work.Go(s.background)
	return s
}

// lock locks the archive of a log within this process.
func (s *store) lock(ctx context.Context, id ID) (unlock func(), err error) {
	s.mu.Lock()
	t := s.busy[id]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		t.token <- struct{}{}
		s.busy[id] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.busy, id)
		}
	}
	select {
	case <-t.token:
		return func() { t.token <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// claim locks the archive of a log among the servers that share the streams. It waits
// while another server has it.
func (s *store) claim(ctx context.Context, id ID) (held context.Context, release func(), err error) {
	for {
		held, release, err = s.tryClaim(ctx, id)
		if !errors.Is(err, ErrClaimed) {
			return held, release, err
		}
		select {
		case <-time.After(claimEvery):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (s *store) tryClaim(ctx context.Context, id ID) (held context.Context, release func(), err error) {
	if s.shared == nil {
		return ctx, func() {}, nil
	}
	return s.shared.Claim(ctx, id)
}

// start opens a stream. If a previous stream is not archived yet, start archives it
// first.
func (s *store) start(ctx context.Context, id ID, writer string) error {
	s.look()
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	switch st, err := s.streams.State(ctx, id); {
	case errors.Is(err, ErrUnknown):
		if err := s.reserve(ctx, 0, 1); err != nil {
			return err
		}
	case err != nil:
		return err
	case st.pending():
		if err := s.snapshot(ctx, id, s.claim); err != nil {
			return err
		}
	}
	return s.squeeze(ctx, func() error { return s.streams.Start(ctx, id, writer) })
}

// append adds lines to a stream.
func (s *store) append(ctx context.Context, id ID, b Batch) error {
	s.look()
	size := int64(0)
	for _, l := range b.Lines {
		size += int64(len(l.Raw)) + 1
	}
	b.MaxStream = s.cfg.MaxStream
	if size > b.MaxStream {
		return fmt.Errorf("%w of %d bytes", ErrTooLong, b.MaxStream)
	}
	if !s.fits(size, 1) {
		fresh := 0
		if _, err := s.streams.State(ctx, id); errors.Is(err, ErrUnknown) {
			fresh = 1
		}
		if err := s.reserve(ctx, size, fresh); err != nil {
			return err
		}
	}
	return s.squeeze(ctx, func() error { return s.streams.Append(ctx, id, b) })
}

// finish completes a stream. The store archives its content later, if snapshot is true
// or if the writer uploaded no archive.
func (s *store) finish(ctx context.Context, id ID, snapshot bool) error {
	if err := s.streams.Finish(ctx, id, snapshot); err != nil {
		return err
	}
	s.mu.Lock()
	s.stuck = false
	if !s.lazy {
		s.due[id] = struct{}{}
	}
	s.mu.Unlock()
	s.wake()
	return nil
}

// upload sets the archive of a log. size is -1 if it is unknown.
func (s *store) upload(ctx context.Context, id ID, r io.Reader, size int64) error {
	s.look()
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.reserve(ctx, max(size, 0), 1); err != nil {
		return err
	}
	ctx, release, err := s.claim(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if err := s.archive.put(ctx, id, r); err != nil {
		return err
	}
	st, err := s.streams.State(ctx, id)
	if err == nil {
		err = s.streams.SetArchived(ctx, id, st.Run, Uploaded)
	}
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}

// snapshot archives a stream if it is complete and its archive lacks lines. The caller
// must hold the lock of the log. claim is s.claim or s.tryClaim.
func (s *store) snapshot(
	ctx context.Context, id ID, claim func(context.Context, ID) (context.Context, func(), error),
) error {
	pending := func() (State, bool, error) {
		st, err := s.streams.State(ctx, id)
		if errors.Is(err, ErrUnknown) {
			err = nil
		}
		return st, err == nil && st.pending(), err
	}
	if _, is, err := pending(); !is {
		return err
	}
	ctx, release, err := claim(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	st, is, err := pending() // check again: another server may have archived it
	if !is {
		return err
	}
	if err := s.archive.put(ctx, id, s.content(ctx, id, st)); err != nil {
		return err
	}
	return s.streams.SetArchived(ctx, id, st.Run, st.Lines)
}

// content returns a reader of the stream's lines, newline-delimited. It fetches them as
// it is read.
func (s *store) content(ctx context.Context, id ID, st State) io.Reader {
	return &contentReader{next: func(from int64) ([]Line, error) {
		if from >= st.Lines {
			return nil, nil
		}
		return s.streams.Read(ctx, id, st.Run, from)
	}}
}

type contentReader struct {
	next func(from int64) ([]Line, error)
	from int64
	buf  []byte // unread from off
	off  int
}

func (c *contentReader) Read(p []byte) (int, error) {
	if c.off == len(c.buf) {
		lines, err := c.next(c.from)
		if err != nil {
			return 0, err
		}
		if len(lines) == 0 {
			return 0, io.EOF
		}
		c.from = lines[len(lines)-1].Pos + 1
		c.buf, c.off = c.buf[:0], 0
		for _, l := range lines {
			c.buf = append(append(c.buf, l.Raw...), '\n')
		}
	}
	n := copy(p, c.buf[c.off:])
	c.off += n
	return n, nil
}

// look wakes the background work if tendEvery has passed.
func (s *store) look() {
	s.mu.Lock()
	due := s.cfg.Now().Sub(s.tends) >= tendEvery
	s.mu.Unlock()
	if due {
		s.wake()
	}
}

func (s *store) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// close ends the background work, makes the streams durable and ends all readers.
func (s *store) close() error {
	s.stop()
	s.work.Wait()
	return errors.Join(s.streams.Close(), s.archive.close())
}
