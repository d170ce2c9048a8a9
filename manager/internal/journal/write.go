package journal

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// call is a command with a waiting caller.
type call struct {
	body []byte
	done chan answer // capacity 1

	// Guarded by queueMu.
	flight *flight // nil while the call is pending
	gone   bool    // the caller has stopped waiting
}

// answer sends the result of the command to its caller, unless the caller has it already.
func (c *call) answer(result any) {
	a := answer{result: result}
	if result == ErrSetAside { //nolint:errorlint // it is the value itself
		a = answer{err: ErrSetAside}
	}
	select {
	case c.done <- a:
	default:
	}
}

type answer struct {
	result any
	err    error
}

// flight is a batch of calls that becomes one entry.
type flight struct {
	calls     []*call
	seq       uint64        // position in the log, if known; guarded by mu
	left      int           // number of waiting callers; guarded by queueMu
	abandoned chan struct{} // closed when no caller waits
}

// resendFor bounds how long the journal resends a batch. After a day a log may no
// longer recognise a repeated batch.
const resendFor = time.Hour

func fail(calls []*call, err error) {
	for _, c := range calls {
		select {
		case c.done <- answer{err: err}:
		default: // already answered
		}
	}
}

func (j *Journal[C]) enqueue(c *call) error {
	if err := j.err(); err != nil {
		return err
	}
	j.queueMu.Lock()
	defer j.queueMu.Unlock()
	if j.closed {
		return ErrClosed
	}
	j.pending = append(j.pending, c)
	poke(j.wake)
	return nil
}

// withdraw prevents a command from being sent, if it is still pending.
func (j *Journal[C]) withdraw(c *call) {
	j.queueMu.Lock()
	defer j.queueMu.Unlock()
	c.gone = true
	if f := c.flight; f != nil {
		if f.left--; f.left == 0 {
			close(f.abandoned)
		}
		return
	}
	c.body = nil
	if j.gone++; 2*j.gone > len(j.pending) {
		j.pending = slices.DeleteFunc(j.pending, func(c *call) bool { return c.gone })
		j.gone = 0
	}
}

// take returns the calls for the next entry: all pending calls up to MaxBatch. It
// returns nil if there are none.
func (j *Journal[C]) take() *flight {
	j.queueMu.Lock()
	defer j.queueMu.Unlock()
	f := &flight{abandoned: make(chan struct{})}
	n, size := 0, 0
	for _, c := range j.pending {
		if !c.gone {
			if size += len(c.body); size > j.cfg.MaxBatch && len(f.calls) > 0 {
				break
			}
			c.flight = f
			f.calls = append(f.calls, c)
		} else {
			j.gone--
		}
		n++
	}
	j.pending = slices.Delete(j.pending, 0, n)
	f.left = len(f.calls)
	if f.left == 0 {
		return nil
	}
	return f
}

// write puts commands into the log. While it writes an entry, the calls for the next
// entry accumulate. One sync of a disk therefore serves many callers.
func (j *Journal[C]) write() {
	for counter := uint64(1); ; {
		select {
		case <-j.stopping.Done():
			return
		case <-j.wake:
		}
		for f := j.take(); f != nil; f = j.take() {
			j.send(f, counter)
			counter++
		}
	}
}

func (j *Journal[C]) send(f *flight, counter uint64) {
	b := Batch{Origin: j.origin, Counter: counter, At: j.clock.now(), Rules: j.cfg.Rules}
	size := 64 // more than the overhead of sealing
	for _, c := range f.calls {
		size += len(c.body) + 10
	}
	body := make([]byte, 0, size)
	for _, c := range f.calls {
		body = appendCommand(body, c.body)
		c.body = nil
	}
	var err error
	if b.Body, err = j.seal.seal(entryPlace(b), body); err != nil {
		fail(f.calls, fmt.Errorf("sealing the commands: %w", err))
		return
	}
	j.mu.Lock()
	j.sent[counter] = f
	j.mu.Unlock()
	e, err := j.append(f, b)
	if err != nil {
		if !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrClosed) {
			err = asUnavailable(err)
		}
		j.mu.Lock()
		delete(j.sent, counter)
		j.mu.Unlock()
		fail(f.calls, err) // except calls that reload or follow has answered
		return
	}
	if j.acknowledge(f, e) {
		return
	}
	// Nothing else is appended meanwhile.
	if err := j.reload(errPanicked); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.fail(err)
	}
}

// append sends a batch until the log answers or no caller waits.
func (j *Journal[C]) append(f *flight, b Batch) (Entry, error) {
	var wait backOff
	first := time.Now()
	for {
		before := j.cfg.Now()
		e, err := j.log.Append(j.ctx, j.seal.log, b)
		if err == nil {
			if wait.d == 0 {
				j.updateClock(before, e.At)
			}
			j.noTrouble()
			return e, nil
		}
		if !errors.Is(err, ErrRetry) {
			return e, err
		}
		j.recordTrouble(err)
		again := wait.wait(j.stopping, f.abandoned)
		if j.stopping.Err() != nil {
			return e, fmt.Errorf("%w: %w", ErrUnavailable, ErrClosed)
		}
		if !again || time.Since(first) > resendFor || j.arrivedOtherwise(b.Counter) {
			return e, err
		}
	}
}

// arrivedOtherwise reports whether follow or reload has found the batch in the log,
// without an answer to the batch itself.
func (j *Journal[C]) arrivedOtherwise(counter uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sent[counter] == nil
}

// acknowledge applies an entry that the log has acknowledged, if it is the next one. It
// reports false if a command panicked and the caller must reload.
func (j *Journal[C]) acknowledge(f *flight, e Entry) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.sent[e.Counter] != f {
		return true // already answered
	}
	f.seq = e.Seq
	if e.Seq <= j.live.pos.Seq {
		// The log lost its end and continued without it. Reading the log again applies
		// the entry.
		poke(j.doubt)
		return true
	}
	err := j.applyNext(e)
	if !errors.Is(err, errGap) || j.log.Shared() {
		return true // follow reads the missing entries and then this one, or reloads
	}
	if !errors.Is(err, errPanicked) {
		err = j.readMissing(e.Seq)
	}
	if errors.Is(err, errPanicked) {
		return false
	}
	if err != nil {
		j.fail(err)
	}
	return true
}

// errLostResult is the error of a command that a saved state covers or that the log
// lost.
var errLostResult = fmt.Errorf("%w: the log lost its end, or this process was far behind; the command may or may not have been applied", ErrUnavailable)
