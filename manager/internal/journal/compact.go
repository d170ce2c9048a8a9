package journal

import (
	"context"
	"errors"
	"time"
)

const (
	smallLog     = 1 << 20     // bytes; a smaller log is not worth a compaction
	compactAgain = time.Minute // delay after a failed compaction
	// compactShared is the minimum time between compactions of a shared log. A process
	// that is less far behind finds all entries that it needs.
	compactShared = 10 * time.Second
)

// Compact saves the state and drops the log before it. The journal also compacts
// automatically: see Config.CompactAfter. It continues to apply commands meanwhile.
//
// Compact fails with ErrBusy if another process saves the state.
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
	r := newReplica(j.cfg.New(), j.cfg.Rules, j.seal, j.live.aside)
	// Entries that this process has not applied yet stay in the log.
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

// saved records a new saved state. begun contains the sizes when its compaction began;
// it may subtract slightly too much.
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

// compactAtTimes saves the state each time the log has become long.
func (j *Journal[C]) compactAtTimes() {
	every := time.NewTicker(j.cfg.CompactEvery)
	defer every.Stop()
	for {
		select {
		case <-j.stopping.Done():
			return
		case <-j.full:
		case <-every.C:
			if s := j.Stats(); s.Entries == 0 || s.Bytes+s.Snapshot.Size < smallLog {
				continue
			}
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
			j.cfg.Logger.Warn().Err(err).Msg("cannot save the state: the log grows until a later attempt succeeds")
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
		j.arrived() // the log may still be too long
		j.mu.Unlock()
	}
}
