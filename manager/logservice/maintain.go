package logservice

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// background does the periodic and the due work until the store closes.
func (s *store) background() {
	syncs, maintained := time.NewTicker(syncEvery), time.NewTicker(maintainEvery)
	defer syncs.Stop()
	defer maintained.Stop()
	if s.cfg.Archive != "" {
		s.removeExpired(s.ctx) // also counts the objects in the bucket
	}
	s.archiveDue(s.ctx)
	for {
		select {
		case <-syncs.C:
			s.logError("syncing streams", s.streams.Sync())
		case <-maintained.C:
			s.maintain(s.ctx)
			s.archiveDue(s.ctx) // retries failed streams as well
		case <-s.wakeup:
			s.maintain(s.ctx)
			s.archiveDue(s.ctx)
		case <-s.ctx.Done():
			return
		}
	}
}

// logError logs an error of background work.
func (s *store) logError(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Logger.Error().Err(err).Msg("log service: " + what)
	}
}

// maintain completes idle streams and removes streams that are archived. Every expireEvery it
// removes expired archives.
func (s *store) maintain(ctx context.Context) {
	now := s.cfg.Now()
	s.mu.Lock()
	if now.Sub(s.maintained) < maintainEvery {
		s.mu.Unlock()
		return
	}
	s.maintained = now
	expire := now.Sub(s.expired) >= expireEvery
	s.mu.Unlock()
	for id, st := range s.streams.All(ctx, "") {
		idle := now.Sub(st.Touched)
		switch {
		case st.Open && idle >= s.cfg.IdleTimeout:
			s.logError("closing a stream", s.finish(ctx, id, false))
		case st.Pending() && !s.lazy:
			// The server that should archive it may have ended.
			s.mu.Lock()
			s.due[id] = struct{}{}
			s.mu.Unlock()
		case !st.Open && !st.Pending() && idle >= linger,
			s.lazy && !st.Open && s.tooOld(now, st.Touched):
			s.logError("removing a stream", s.streams.Remove(ctx, id, st.Run))
		}
	}
	if expire {
		s.removeExpired(ctx)
	}
}

func (s *store) tooOld(now, at time.Time) bool {
	return s.cfg.MaxAge > 0 && now.Sub(at) >= s.cfg.MaxAge
}

// removeExpired removes expired archives.
func (s *store) removeExpired(ctx context.Context) {
	now := s.cfg.Now()
	s.mu.Lock()
	s.expired = now
	s.mu.Unlock()
	var old []object
	err := s.archive.list(ctx, "", func(o object) {
		if s.tooOld(now, o.at) {
			old = append(old, o)
		}
	})
	for _, o := range old {
		err = errors.Join(err, s.archive.remove(ctx, o))
	}
	s.logError("looking through the archive", err)
}

// archiveDue archives the complete streams. Failed ones stay due.
func (s *store) archiveDue(ctx context.Context) {
	s.mu.Lock()
	due := make([]livelog.ID, 0, len(s.due))
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
			s.logError("archiving a stream", s.archiveOne(ctx, id))
		})
	}
	work.Wait()
}

func (s *store) archiveOne(ctx context.Context, id livelog.ID) error {
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
	if errors.Is(err, livelog.ErrClaimed) {
		return nil // stays due: the next run checks the result of the other server
	}
	return err
}
