package logservice

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// background does the periodic and the due work until the store closes.
func (s *store) background() {
	syncs, tends := time.NewTicker(syncEvery), time.NewTicker(tendEvery)
	defer syncs.Stop()
	defer tends.Stop()
	if s.cfg.Archive != "" {
		s.age(s.ctx) // also counts the objects in the bucket
	}
	s.archiveDue(s.ctx)
	for {
		select {
		case <-syncs.C:
			s.complain("syncing streams", s.streams.Sync())
		case <-tends.C:
			s.tend(s.ctx)
			s.archiveDue(s.ctx) // retries failed streams as well
		case <-s.kick:
			s.tend(s.ctx)
			s.archiveDue(s.ctx)
		case <-s.ctx.Done():
			return
		}
	}
}

// complain logs an error of background work.
func (s *store) complain(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Logger.Error().Err(err).Msg("log service: " + what)
	}
}

// tend completes idle streams and removes streams that are archived. Every ageEvery it
// removes expired archives.
func (s *store) tend(ctx context.Context) {
	now := s.cfg.Now()
	s.mu.Lock()
	if now.Sub(s.tends) < tendEvery {
		s.mu.Unlock()
		return
	}
	s.tends = now
	aged := now.Sub(s.aged) >= ageEvery
	s.mu.Unlock()
	for id, st := range s.streams.All(ctx) {
		idle := now.Sub(st.Touched)
		switch {
		case st.Open && idle >= s.cfg.IdleTimeout:
			s.complain("closing a stream", s.finish(ctx, id, false))
		case st.pending() && !s.lazy:
			// The server that should archive it may have ended.
			s.mu.Lock()
			s.due[id] = struct{}{}
			s.mu.Unlock()
		case !st.Open && !st.pending() && idle >= linger,
			s.lazy && !st.Open && s.tooOld(now, st.Touched):
			s.complain("removing a stream", s.streams.Remove(ctx, id, st.Run))
		}
	}
	if aged {
		s.age(ctx)
	}
}

func (s *store) tooOld(now, at time.Time) bool {
	return s.cfg.MaxAge > 0 && now.Sub(at) >= s.cfg.MaxAge
}

// age removes expired archives.
func (s *store) age(ctx context.Context) {
	now := s.cfg.Now()
	s.mu.Lock()
	s.aged = now
	s.mu.Unlock()
	var old []object
	err := s.archive.list(ctx, func(o object) {
		if s.tooOld(now, o.at) {
			old = append(old, o)
		}
	})
	for _, o := range old {
		err = errors.Join(err, s.archive.remove(ctx, o))
	}
	s.complain("looking through the archive", err)
}

// archiveDue archives the complete streams. Failed ones stay due.
func (s *store) archiveDue(ctx context.Context) {
	s.mu.Lock()
	due := make([]ID, 0, len(s.due))
	for id := range s.due {
		due = append(due, id)
	}
	s.mu.Unlock()
	var work sync.WaitGroup
	room := make(chan struct{}, archivers)
	for _, id := range due {
		if ctx.Err() != nil {
			break
		}
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			s.complain("archiving a stream", s.archiveOne(ctx, id))
		})
	}
	work.Wait()
}

func (s *store) archiveOne(ctx context.Context, id ID) error {
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	// Delete the entry first: a stream that is completed again in the meantime is then
	// due again.
	s.mu.Lock()
	delete(s.due, id)
	s.mu.Unlock()
	if err = s.snapshot(ctx, id, s.tryClaim); err != nil {
		s.mu.Lock()
		s.due[id] = struct{}{}
		s.mu.Unlock()
	}
	if errors.Is(err, ErrClaimed) {
		return nil // stays due: the next run checks the result of the other server
	}
	return err
}

// fits reports whether there is room for the bytes and logs.
func (s *store) fits(size int64, logs int) bool {
	streams, inStreams := s.streams.Usage()
	archives, inArchive := s.archive.usage()
	return inStreams+inArchive+size <= s.cfg.MaxTotal && streams+archives+logs <= s.cfg.MaxLogs
}

// reserve makes room for bytes and logs. It fails with errFull if eviction does not
// free enough.
func (s *store) reserve(ctx context.Context, size int64, logs int) error {
	if s.fits(size, logs) {
		return nil
	}
	s.mu.Lock()
	stuck := s.stuck
	s.mu.Unlock()
	if stuck {
		return errFull // avoids listing a bucket again without effect
	}
	select {
	case <-s.evicter:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.evicter <- struct{}{} }()
	if err := s.evict(ctx, size, logs); err != nil {
		return err
	}
	if s.fits(size, logs) {
		return nil
	}
	s.getStuck()
	return errFull
}

// getStuck suspends eviction for ten seconds, because it did not help.
func (s *store) getStuck() {
	s.mu.Lock()
	s.stuck = true
	s.mu.Unlock()
	time.AfterFunc(10*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stuck = false
	})
}

// squeeze calls call, which needs room in the store of streams. That store may have
// lower limits. If it is full, squeeze removes archived streams early and repeats the
// call.
func (s *store) squeeze(ctx context.Context, call func() error) error {
	err := call()
	if !errors.Is(err, ErrFull) {
		return err
	}
	s.mu.Lock()
	stuck := s.stuck
	s.mu.Unlock()
	if stuck {
		return err
	}
	removed := false
	for id, st := range s.streams.All(ctx) {
		if st.Open || st.pending() {
			continue
		}
		if err := s.streams.Remove(ctx, id, st.Run); err != nil {
			return err
		}
		removed = true
	}
	if removed {
		return call()
	}
	s.getStuck()
	return err
}

// evict removes complete logs until there is room. It first removes archived streams,
// then the logs with the oldest change.
func (s *store) evict(ctx context.Context, size int64, logs int) error {
	type candidate struct {
		at     time.Time
		remove func() error
	}
	var spare, last []candidate
	for id, st := range s.streams.All(ctx) {
		if st.pending() && !s.lazy {
			// Only an archived stream may be removed.
			if err := s.archiveOne(ctx, id); err != nil {
				return err
			}
		}
	}
	for id, st := range s.streams.All(ctx) {
		c := candidate{st.Touched, func() error { return s.streams.Remove(ctx, id, st.Run) }}
		switch {
		case st.Open, st.pending() && !s.lazy:
		case st.pending():
			last = append(last, c)
		default:
			spare = append(spare, c)
		}
	}
	err := s.archive.list(ctx, func(o object) {
		last = append(last, candidate{o.at, func() error { return s.archive.remove(ctx, o) }})
	})
	if err != nil {
		return err
	}
	oldest := func(a, b candidate) int { return a.at.Compare(b.at) }
	slices.SortFunc(spare, oldest)
	slices.SortFunc(last, oldest)
	for _, c := range append(spare, last...) {
		if s.fits(size, logs) {
			return nil
		}
		if err := c.remove(); err != nil {
			return err
		}
	}
	return nil
}
