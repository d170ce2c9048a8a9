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

// applyNext applies the next entry. If the entry is not the next one, it fails with
// errGap and changes nothing. If a command panics, it fails with errPanicked, which is an
// errGap as well: the caller must reload. The caller must hold mu.
func (j *Journal[C]) applyNext(e Entry) error {
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
			f.calls[i].answer(result)
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

// arrived reports that the machine has moved in the log. The caller must hold mu.
func (j *Journal[C]) arrived() {
	if !j.live.at.IsZero() {
		j.last.Store(j.live.at.UnixNano())
		j.clock.reach(j.live.at)
	}
	if j.live.bytes > max(j.cfg.CompactAfter, j.live.base.Size) {
		poke(j.full)
	}
	if j.moved != nil {
		close(j.moved)
		j.moved = nil
	}
}

// fail stops the journal: if it continued, its state would differ from the log. The
// caller must hold mu.
func (j *Journal[C]) fail(err error) {
	if j.failed != nil {
		return
	}
	j.failed = asUnavailable(err)
	j.cfg.Logger.Error().Err(err).Msg("the journal has failed and applies no further commands")
	for counter, f := range j.sent {
		fail(f.calls, j.failed)
		delete(j.sent, counter)
	}
	j.arrived()
}

// readMissing applies all entries up to one, in a log without other writers. The caller
// must hold mu: such a log never waits for entries.
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
			if err := j.applyNext(e); errors.Is(err, errPanicked) {
				return err
			} else if err != nil {
				return fmt.Errorf("%w: %w", ErrDamaged, err)
			}
		}
	}
	return nil
}

// follow applies entries of other processes until the journal closes.
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
		j.recordTrouble(err)
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
	if err := j.detectLoss(); err != nil {
		poke(j.doubt)
		return err
	}
	return nil
}

// readOn applies some of the next entries. It returns false if there are none.
func (j *Journal[C]) readOn() (bool, error) {
	entries, err := j.log.Read(j.ctx, j.position().Seq)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		j.mu.Lock()
		if e.Seq > j.live.pos.Seq { // earlier entries are already applied
			err = j.applyNext(e)
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

// detectLoss detects that the log lost its end: then no entry follows the position of
// the machine.
func (j *Journal[C]) detectLoss() error {
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
	// All entries in the log are applied. The log lost each acknowledged batch that is
	// still in sent.
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

// acked returns the counters of batches that the log acknowledged and that are not
// applied.
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

// reload replaces the state by the current content of the log. It is necessary if the
// store lost unsaved entries in a crash, or if another process dropped entries before
// this process read them.
func (j *Journal[C]) reload(why error) error {
	j.cfg.Logger.Warn().Err(why).Msg("the journal reads the whole log again")
	end, err := j.logEnd(j.ctx)
	if err != nil {
		return err
	}
	r := newReplica(j.cfg.New(), j.cfg.Rules, j.seal, j.live.aside)
	results := map[uint64][]any{} // by counter
	err = r.restore(j.ctx, j.log, end.Seq, j.cfg.New, func(e Entry, i int, result any) {
		if e.Origin == j.origin && !j.arrivedOtherwise(e.Counter) {
			results[e.Counter] = append(results[e.Counter][:i], result) // an entry may be read several times
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
				f.calls[i].answer(x)
			}
		}
	}
	poke(j.doubt) // checks which of the other batches are in the log
	j.reloads++
	j.arrived()
	return nil
}

func (j *Journal[C]) position() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live.pos
}

// logEnd returns the end of the log.
func (j *Journal[C]) logEnd(ctx context.Context) (End, error) {
	before := j.cfg.Now()
	end, err := j.log.End(ctx)
	if err == nil && end.Log != j.seal.log {
		err = fmt.Errorf("%w: restart the process to continue with the entries in the log", ErrOtherLog)
	}
	if err == nil && !end.Now.IsZero() {
		j.updateClock(before, end.Now)
	}
	return end, err
}

// updateClock records the difference between the clocks of the log and of this process.
func (j *Journal[C]) updateClock(asked, at time.Time) {
	if j.log.Shared() {
		j.offset.Store(int64(at.Sub(asked) - j.cfg.Now().Sub(asked)/2))
	}
}

func (j *Journal[C]) reloadCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reloads
}

// await waits until the machine has applied entry seq, and then returns true. It
// returns false if the journal was reloaded since it had reloads reloads.
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

// recordTrouble records the error of the log, for callers that wait for it.
func (j *Journal[C]) recordTrouble(err error) {
	if j.trouble.Swap(&err) == nil {
		j.cfg.Logger.Warn().Err(err).Msg("the store does not answer: trying again")
	}
}

func (j *Journal[C]) noTrouble() {
	if j.trouble.Load() != nil && j.trouble.Swap(nil) != nil {
		j.cfg.Logger.Info().Msg("the store answers again")
	}
}

func (j *Journal[C]) whatTroubles() error {
	if err := j.trouble.Load(); err != nil {
		return *err
	}
	return nil
}
