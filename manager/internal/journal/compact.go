package journal

import (
	"context"
	"errors"
	"time"
)

const (
	compactAgain = time.Minute // after it failed
	// compactShared lies between two times on a shared log: who is less far behind
	// than that finds all that it needs.
	compactShared = 10 * time.Second
)

// Compact saves the state and drops the log before it. It is done at times
// anyway, see Config.CompactAfter. Commands are carried out meanwhile.
//
// It fails with ErrBusy when another process does it.
func (j *Journal[C]) Compact(ctx context.Context) error {
	if j.isClosed() {
		return ErrClosed
	}
	if j.log == nil {
		return nil
	}
	select {
	case <-j.saving:
		defer func() { j.saving <- struct{}{} }()
	case <-ctx.Done():
		return unavailable(ctx, nil)
	case <-j.stopping.Done():
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(j.stopping, cancel)()
	return j.compact(ctx)
}

func (j *Journal[C]) compact(ctx context.Context) error {
	release, err := j.log.Lead(ctx)
	if err != nil {
		return err
	}
	defer release()
	begun := j.Stats()
	if begun.Entries == 0 {
		return nil
	}
	r := newReplica(j.cfg.New(), j.cfg.Rules, j.seal)
	// What this process has not carried out yet stays in the log.
	if err := r.restore(ctx, j.log, begun.Position, j.cfg.New, ignore); err != nil {
		return err
	}
	s, err := r.save(ctx, j.log, j.cfg.Now())
	if err != nil {
		return err
	}
	j.saved(s, begun)
	return nil
}

// saved: there is a new saved state. What came since then is as much as came
// since that was begun, or a bit less.
func (j *Journal[C]) saved(s Snapshot, begun Stats) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.Seq <= j.live.base.Seq {
		return
	}
	j.live.base = s
	j.live.entries = max(0, j.live.entries-begun.Entries)
	j.live.bytes = max(0, j.live.bytes-begun.Bytes)
}

// compactAtTimes saves the state whenever the log has become long.
func (j *Journal[C]) compactAtTimes() {
	for {
		select {
		case <-j.stopping.Done():
			return
		case <-j.full:
		}
		begun := j.Stats()
		err := j.Compact(j.stopping)
		pause := compactAgain
		switch {
		case err == nil && !j.log.Shared():
			continue
		case err == nil, errors.Is(err, ErrBusy):
			pause = compactShared
		case j.stopping.Err() == nil:
			j.cfg.Logger.Warn().Err(err).Msg("The state could not be saved; the log becomes longer")
		}
		t := time.NewTimer(pause)
		select {
		case <-j.stopping.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if s, err := j.log.Snapshot(j.stopping); err == nil {
			j.saved(s, begun)
		}
		j.mu.Lock()
		j.arrived() // it may still be too long
		j.mu.Unlock()
	}
}
