package journal

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// carryOut carries out the next entry. It fails with errGap if this is another
// one, and then nothing has happened. With mu held.
func (j *Journal[C]) carryOut(e Entry) error {
	if j.failed != nil {
		return j.failed
	}
	own := e.Origin == j.origin
	var f *flight
	if own {
		f = j.sent[e.Counter]
	}
	unbroken := j.breakOnPanic()
	err := j.live.apply(e, own, func(i int, result any) {
		if f != nil {
			f.calls[i].done <- answer{result: result}
		}
	})
	unbroken()
	switch {
	case errors.Is(err, errGap):
		return err
	case err != nil:
		j.fail(err)
		return err
	case f != nil:
		delete(j.sent, e.Counter)
	}
	j.arrived()
	return nil
}

// arrived tells that the machine is further in the log. With mu held.
func (j *Journal[C]) arrived() {
	if !j.live.at.IsZero() {
		j.last.Store(j.live.at.UnixNano())
	}
	if j.live.bytes > max(j.cfg.CompactAfter, j.live.base.Size) {
		poke(j.full)
	}
	if j.moved != nil {
		close(j.moved)
		j.moved = nil
	}
}

// fail ends all that the journal does: going on would make a state that is not
// the log's. With mu held.
func (j *Journal[C]) fail(err error) {
	if j.failed != nil {
		return
	}
	j.failed = asUnavailable(err)
	j.cfg.Logger.Error().Err(err).Msg("The journal cannot go on")
	for counter, f := range j.sent {
		fail(f.calls, j.failed)
		delete(j.sent, counter)
	}
	j.arrived()
}

// readMissing carries out all up to an entry of a log that nobody else writes to.
// With mu held: there is nothing to wait for.
func (j *Journal[C]) readMissing(until uint64) error {
	for j.live.pos.Seq < until {
		entries, err := retry(j.ctx, func() ([]Entry, error) { return j.log.Read(j.ctx, j.live.pos.Seq) })
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		if len(entries) == 0 {
			return fmt.Errorf("%w: it ends after entry %d, before %d", ErrDamaged, j.live.pos.Seq, until)
		}
		for _, e := range entries {
			if err := j.carryOut(e); err != nil {
				return fmt.Errorf("%w: %w", ErrDamaged, err)
			}
		}
	}
	return nil
}

// follow carries out what others have put into the log, and what is behind that.
func (j *Journal[C]) follow() {
	var wait backOff
	for j.ctx.Err() == nil {
		err := j.followOn()
		if err == nil {
			wait = backOff{}
			j.noTrouble()
			continue
		}
		if j.ctx.Err() != nil || j.err() != nil {
			return
		}
		j.troubled(err)
		wait.wait(j.ctx, nil)
	}
}

// followOn reads once.
func (j *Journal[C]) followOn() error {
	some, err := j.readOn()
	if err != nil {
		return err
	}
	doubted := false
	select {
	case <-j.doubt:
		doubted = true
	default:
	}
	if some && !doubted {
		return nil
	}
	if err := j.lookForLoss(); err != nil {
		poke(j.doubt)
		return err
	}
	return nil
}

// readOn carries out some of what comes next, and returns false if there is
// nothing.
func (j *Journal[C]) readOn() (bool, error) {
	entries, err := j.log.Read(j.ctx, j.position().Seq)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		j.mu.Lock()
		if e.Seq > j.live.pos.Seq { // the others are carried out already
			err = j.carryOut(e)
		}
		j.mu.Unlock()
		if errors.Is(err, errGap) {
			return true, j.reload(err)
		}
		if err != nil {
			return true, err
		}
	}
	return len(entries) > 0, nil
}

// lookForLoss sees when the log lost its end: then nothing comes that follows it.
func (j *Journal[C]) lookForLoss() error {
	acked, reloads, from := j.acked(), j.reloadCount(), j.position()
	end, err := j.logEnd(j.ctx)
	if err != nil {
		return err
	}
	if end.Seq < from.Seq || end.Seq == from.Seq && end.Token != from.Token {
		return j.reload(fmt.Errorf("the log ends with entry %d, and not with %d", end.Seq, from.Seq))
	}
	for j.position().Seq < end.Seq {
		some, err := j.readOn()
		if err == nil && !some {
			err = j.reload(fmt.Errorf("entry %d is missing", from.Seq+1))
		}
		if err != nil || j.reloadCount() != reloads {
			return err
		}
	}
	// All that was there is carried out. What had been there before and is not was
	// lost.
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, counter := range acked {
		if f := j.sent[counter]; f != nil {
			delete(j.sent, counter)
			fail(f.calls, errLostResult)
		}
	}
	return nil
}

// acked are the counters of what was in the log and is not carried out.
func (j *Journal[C]) acked() []uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var acked []uint64
	for counter, f := range j.sent {
		if f.seq > 0 {
			acked = append(acked, counter)
		}
	}
	return acked
}

// reload brings the machine to what the log has now, when that is not what it had
// before: a store lost what it had not written down when it died, or another
// process dropped entries that this one did not read in time.
func (j *Journal[C]) reload(why error) error {
	j.cfg.Logger.Warn().Err(why).Msg("The journal reads the whole log again")
	end, err := j.logEnd(j.ctx)
	if err != nil {
		return err
	}
	r := newReplica(j.cfg.New(), j.cfg.Rules, j.seal)
	results := map[uint64][]any{} // by counter
	err = r.restore(j.ctx, j.log, end.Seq, j.cfg.New, func(e Entry, i int, result any) {
		if e.Origin == j.origin && !j.arrivedOtherwise(e.Counter) {
			results[e.Counter] = append(results[e.Counter][:i], result) // it may be read several times
		}
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.failed
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) {
		j.fail(err)
	}
	if err != nil {
		return err
	}
	unbroken := j.breakOnPanic()
	err = j.live.takeOver(r)
	unbroken()
	if err != nil {
		j.fail(err)
		return err
	}
	for counter, all := range results {
		if f := j.sent[counter]; f != nil {
			delete(j.sent, counter)
			for i, x := range all {
				f.calls[i].done <- answer{result: x}
			}
		}
	}
	poke(j.doubt) // which of the rest are in the log
	j.reloads++
	j.arrived()
	return nil
}

func (j *Journal[C]) position() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live.pos
}

// logEnd looks for the log's end.
func (j *Journal[C]) logEnd(ctx context.Context) (End, error) {
	before := j.cfg.Now()
	end, err := j.log.End(ctx)
	if err == nil && end.Log != j.seal.log {
		err = fmt.Errorf("%w: restart the process to go on with what is there", ErrOtherLog)
	}
	if err == nil && !end.Now.IsZero() {
		j.learnClock(before, end.Now)
	}
	return end, err
}

// learnClock compares the log's clock with this process's one.
func (j *Journal[C]) learnClock(asked, at time.Time) {
	if j.log.Shared() {
		j.offset.Store(int64(at.Sub(asked) - j.cfg.Now().Sub(asked)/2))
	}
}

func (j *Journal[C]) reloadCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reloads
}

// await returns true when the machine is there. It returns false when the log is
// not the same as when there were so many reloads.
func (j *Journal[C]) await(ctx context.Context, seq uint64, reloads int) (bool, error) {
	for {
		j.mu.Lock()
		if j.failed != nil || j.live.pos.Seq >= seq || j.reloads != reloads {
			defer j.mu.Unlock()
			return j.reloads == reloads, j.failed
		}
		if j.moved == nil {
			j.moved = make(chan struct{})
		}
		moved := j.moved
		j.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return false, unavailable(ctx, j.whatTroubles())
		case <-j.stopping.Done():
			return false, ErrClosed
		}
	}
}

// troubled remembers why the log does not answer, for those who wait for it.
func (j *Journal[C]) troubled(err error) {
	if j.trouble.Swap(&err) == nil {
		j.cfg.Logger.Warn().Err(err).Msg("The store does not answer; the journal tries again")
	}
}

func (j *Journal[C]) noTrouble() {
	if j.trouble.Load() != nil && j.trouble.Swap(nil) != nil {
		j.cfg.Logger.Info().Msg("The store answers again")
	}
}

func (j *Journal[C]) whatTroubles() error {
	if err := j.trouble.Load(); err != nil {
		return *err
	}
	return nil
}
