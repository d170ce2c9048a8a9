package logservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

const (
	// linger is the time for which a stream stays after its archive is complete, for
	// slow readers and for repeated requests.
	linger = 10 * time.Minute
	// syncEvery is the interval of syncs: the maximum age of lines that a power failure
	// can destroy.
	syncEvery = time.Second
	// maintainEvery is the interval at which the store looks for due work.
	maintainEvery = time.Minute
	// expireEvery is the interval at which the store looks for expired archives.
	expireEvery = time.Hour
	// archivers is the number of streams that are archived at the same time.
	archivers = 4
	// claimEvery is the interval at which the store retries to claim an archive that
	// another server has claimed.
	claimEvery = 100 * time.Millisecond
)

// store contains streams and archives and copies complete streams to the archive.
type store struct {
	cfg     *Config
	streams livelog.Streams
	shared  livelog.Shared // equals streams if other servers share them, otherwise nil
	archive *archive
	// lazy means that a stream without an upload serves as its own archive, in memory.
	lazy bool

	ctx     context.Context //nolint:containedctx // of the background work, ended by close
	stop    context.CancelFunc
	work    sync.WaitGroup
	wakeup  chan struct{} // signals due work; capacity 1
	evicter chan struct{} // contains one token; its holder may evict

	mu         sync.Mutex                   // guards the following fields
	locks      map[livelog.ID]*archiveLock  // locks of the archives
	due        map[livelog.ID]struct{}      // streams to archive
	suspended  map[string]time.Time         // ends of the suspension of eviction, by account
	accounts   map[string]struct{}          // accounts that have used the store
	uploads    map[livelog.ID]chan struct{} // closed at the next upload of the archive
	expired    time.Time                    // time of the last removeExpired
	maintained time.Time                    // time of the last maintain
}

// archiveLock is the lock of one archive. users counts its holder and waiters.
type archiveLock struct {
	token chan struct{}
	users int
}

func newStore(cfg *Config, streams livelog.Streams, a *archive, lazy bool) *store {
	ctx, stop := context.WithCancel(context.Background())
	s := &store{
		cfg: cfg, streams: streams, archive: a, lazy: lazy, ctx: ctx, stop: stop,
		wakeup: make(chan struct{}, 1), evicter: make(chan struct{}, 1),
		locks: map[livelog.ID]*archiveLock{}, due: map[livelog.ID]struct{}{}, maintained: cfg.Now(),
		suspended: map[string]time.Time{}, accounts: map[string]struct{}{}, uploads: map[livelog.ID]chan struct{}{},
	}
	s.evicter <- struct{}{}
	s.shared, _ = streams.(livelog.Shared)
	for id, st := range streams.All(ctx, "") {
		s.accounts[id.Account] = struct{}{}
		if st.Pending() && !lazy {
			s.due[id] = struct{}{}
		}
	}
	if cfg.Archive == "" {
		s.removeExpired(ctx) // age is fast on files; afterwards the limits apply from the first request
	}
	s.work.Go(s.background)
	return s
}

// lock locks the archive of a log within this process.
func (s *store) lock(ctx context.Context, id livelog.ID) (unlock func(), err error) {
	s.mu.Lock()
	t := s.locks[id]
	if t == nil {
		t = &archiveLock{token: make(chan struct{}, 1)}
		t.token <- struct{}{}
		s.locks[id] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.locks, id)
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
func (s *store) claim(ctx context.Context, id livelog.ID) (held context.Context, release func(), err error) {
	for {
		held, release, err = s.tryClaim(ctx, id)
		if !errors.Is(err, livelog.ErrClaimed) {
			return held, release, err
		}
		select {
		case <-time.After(claimEvery):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (s *store) tryClaim(ctx context.Context, id livelog.ID) (held context.Context, release func(), err error) {
	if s.shared == nil {
		return ctx, func() {}, nil
	}
	return s.shared.Claim(ctx, id)
}

// start opens a stream. If a previous stream is not archived yet, start archives it
// first.
func (s *store) start(ctx context.Context, id livelog.ID, writer string) error {
	s.noteUse(id.Account)
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	switch st, err := s.streams.State(ctx, id); {
	case errors.Is(err, livelog.ErrUnknown):
		if err := s.reserveStream(ctx, id.Account, 0, 1); err != nil {
			return err
		}
	case err != nil:
		return err
	case st.Pending():
		if err := s.snapshot(ctx, id, s.claim); err != nil {
			return err
		}
	}
	return s.withRoom(ctx, id.Account, func() error { return s.streams.Start(ctx, id, writer) })
}

// append adds lines to a stream.
func (s *store) append(ctx context.Context, id livelog.ID, b livelog.Batch) error {
	s.noteUse(id.Account)
	size := int64(0)
	for _, l := range b.Lines {
		size += int64(len(l.Raw)) + 1
	}
	b.MaxStream = s.cfg.MaxStream
	if size > b.MaxStream {
		return fmt.Errorf("%w of %d bytes", livelog.ErrTooLong, b.MaxStream)
	}
	if !s.streamsFit(id.Account, size, 1) || !s.fits(size, 1) {
		fresh := 0
		if _, err := s.streams.State(ctx, id); errors.Is(err, livelog.ErrUnknown) {
			fresh = 1
		}
		if err := s.reserveStream(ctx, id.Account, size, fresh); err != nil {
			return err
		}
	}
	return s.withRoom(ctx, id.Account, func() error { return s.streams.Append(ctx, id, b) })
}

// finish completes a stream. The store archives its content later, if snapshot is true
// or if the writer uploaded no archive.
func (s *store) finish(ctx context.Context, id livelog.ID, snapshot bool) error {
	if err := s.streams.Finish(ctx, id, snapshot); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.suspended, id.Account)
	if !s.lazy {
		s.due[id] = struct{}{}
	}
	s.mu.Unlock()
	s.wake()
	return nil
}

// complete adds the last lines to a stream and completes it. Each part may be a repetition: the
// writer repeats the call until it gets an answer.
func (s *store) complete(ctx context.Context, id livelog.ID, b livelog.Batch) error {
	if b.Next <= 0 { // the writer may not have opened the stream
		if err := s.start(ctx, id, b.Writer); err != nil {
			return err
		}
	}
	if err := s.append(ctx, id, b); err != nil {
		return err
	}
	if err := s.finish(ctx, id, true); err != nil {
		return err
	}
	st, err := s.streams.State(ctx, id)
	if err == nil && st.Lines == 0 {
		err = s.upload(ctx, id, strings.NewReader(""), 0) // a stream without lines gets no archive
	}
	return err
}

// upload sets the archive of a log. size is -1 if it is unknown.
func (s *store) upload(ctx context.Context, id livelog.ID, r io.Reader, size int64) error {
	s.noteUse(id.Account)
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.reserve(ctx, id.Account, max(size, 0), 1); err != nil {
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
	defer s.wakeUploadWatchers(id)
	st, err := s.streams.State(ctx, id)
	if err == nil {
		err = s.streams.SetArchived(ctx, id, st.Run, livelog.Uploaded)
	}
	if errors.Is(err, livelog.ErrUnknown) {
		return nil
	}
	return err
}

// snapshot archives a stream if it is complete and its archive lacks lines. The caller
// must hold the lock of the log. claim is s.claim or s.tryClaim.
func (s *store) snapshot(
	ctx context.Context, id livelog.ID, claim func(context.Context, livelog.ID) (context.Context, func(), error),
) error {
	pending := func() (livelog.State, bool, error) {
		st, err := s.streams.State(ctx, id)
		if errors.Is(err, livelog.ErrUnknown) {
			err = nil
		}
		return st, err == nil && st.Pending(), err
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
func (s *store) content(ctx context.Context, id livelog.ID, st livelog.State) io.Reader {
	return &contentReader{next: func(from int64) ([]livelog.Line, error) {
		if from >= st.Lines {
			return nil, nil
		}
		return s.streams.Read(ctx, id, st.Run, from)
	}}
}

type contentReader struct {
	next func(from int64) ([]livelog.Line, error)
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

// maxWatchedUploads bounds the logs whose uploads are watched.
const maxWatchedUploads = 10_000

// watchUpload returns a channel that is closed when this server archives an upload of
// the log, and sometimes without one.
func (s *store) watchUpload(id livelog.ID) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.uploads[id]; ok {
		return c
	}
	if len(s.uploads) >= maxWatchedUploads {
		for _, c := range s.uploads {
			close(c)
		}
		clear(s.uploads)
	}
	c := make(chan struct{})
	s.uploads[id] = c
	return c
}

func (s *store) wakeUploadWatchers(id livelog.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.uploads[id]; ok {
		close(c)
		delete(s.uploads, id)
	}
}

// noteUse records the account. It wakes the background work if maintainEvery has
// passed.
func (s *store) noteUse(account string) {
	s.mu.Lock()
	s.accounts[account] = struct{}{}
	due := s.cfg.Now().Sub(s.maintained) >= maintainEvery
	s.mu.Unlock()
	if due {
		s.wake()
	}
}

func (s *store) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// close ends the background work, makes the streams durable and ends all readers.
func (s *store) close() error {
	s.stop()
	s.work.Wait()
	s.mu.Lock()
	for _, c := range s.uploads {
		close(c)
	}
	clear(s.uploads)
	s.mu.Unlock()
	return errors.Join(s.streams.Close(), s.archive.close())
}
