package capacity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Slots counts the stages that a delegate runs (rule Q1). The poller takes a slot
// before it acquires an init task. The transaction that the init opens keeps the
// slot until its cleanup is done. Slots is safe for concurrent use.
type Slots struct {
	pool *pool
	held int // slots of this share; the pool's mu guards it
}

// pool holds the slots of one Slots and of its shares.
type pool struct {
	max int

	mu     sync.Mutex
	used   int
	change chan struct{} // closed when used changes, then replaced
	shared bool
	queue  []*Slots  // shares that got no slot, in the order in which they asked
	turn   time.Time // end of the turn of the first share; zero without a free slot
}

// turnTime is how long a free slot waits for the share whose turn it is.
const turnTime = 250 * time.Millisecond

// NewSlots returns max free slots. Zero means no limit. It panics if max is
// negative.
func NewSlots(max int) *Slots {
	if max < 0 {
		panic(fmt.Sprintf("capacity: the number of slots is %d: it must not be negative", max))
	}
	return &Slots{pool: &pool{max: max, change: make(chan struct{})}}
}

// Share returns the same slots for another poller of the process. While pollers wait for a
// slot, the next one goes to the share that has the fewest, or has waited longest, so that
// shares with stages get equal parts. Without a stage, a share loses its turn after a quarter
// of a second.
func (s *Slots) Share() *Slots {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.shared = true
	return &Slots{pool: s.pool}
}

// Slot is the slot of one stage. It is safe for concurrent use.
type Slot struct {
	share *Slots

	mu       sync.Mutex
	kept     bool
	released bool
}

// Take takes a slot if one is free, and if it is not the turn of another share.
func (s *Slots) Take() (*Slot, bool) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.max == 0 {
		return p.take(s), true
	}
	for now := time.Now(); p.used < p.max; {
		if p.max-p.used > p.ahead(s) {
			p.queue = slices.DeleteFunc(p.queue, func(o *Slots) bool { return o == s })
			slot := p.take(s)
			p.beginTurn()
			return slot, true
		}
		if now.Before(p.turn) {
			break
		}
		first := slices.MinFunc(p.queue, func(a, b *Slots) int { return a.held - b.held })
		p.queue = slices.DeleteFunc(p.queue, func(o *Slots) bool { return o == first }) // it has not used its turn
		p.beginTurn()
	}
	if p.shared && !slices.Contains(p.queue, s) {
		p.queue = append(p.queue, s)
	}
	return nil, false
}

// ahead counts the shares in the queue whose turn comes before the turn of s. The caller holds mu.
func (p *pool) ahead(s *Slots) (n int) {
	waitsLonger := true // than s
	for _, other := range p.queue {
		switch {
		case other == s:
			waitsLonger = false
		case other.held < s.held, other.held == s.held && waitsLonger:
			n++
		}
	}
	return n
}

// beginTurn gives the next free slot to the first share in the queue, for some time. The
// caller holds mu.
func (p *pool) beginTurn() {
	p.turn = time.Time{}
	if len(p.queue) == 0 || p.used >= p.max {
		return
	}
	p.turn = time.Now().Add(turnTime)
	time.AfterFunc(turnTime+time.Millisecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.signalChange() // the other shares may try
	})
}

// Force takes a slot even if none is free. It is for existing stages: a
// transaction that survived a restart counts even above the limit.
func (s *Slots) Force() *Slot {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.take(s)
}

// take takes a slot. The caller holds mu.
func (p *pool) take(s *Slots) *Slot {
	p.used++
	s.held++
	p.signalChange()
	return &Slot{share: s}
}

// signalChange wakes the goroutines that wait on Changed. The caller holds mu.
func (p *pool) signalChange() {
	close(p.change)
	p.change = make(chan struct{})
}

// Max returns the number of slots, 0 if there is no limit.
func (s *Slots) Max() int { return s.pool.max }

// Used returns the number of taken slots of all shares together. It exceeds Max only
// after [Slots.Force].
func (s *Slots) Used() int {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.used
}

// Changed returns a channel that is closed at the next change of Used, and when the turn of a
// share is over. A caller that waits for a slot calls Changed before Used, so that it misses
// no change.
func (s *Slots) Changed() <-chan struct{} {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.change
}

// Keep extends the slot beyond its init task: after Keep only [Slot.Release]
// releases it. Keep returns false if the slot was released before.
func (s *Slot) Keep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = !s.released
	return s.kept
}

// Drop releases the slot unless Keep was called. The poller calls it when the
// init task has ended.
func (s *Slot) Drop() { s.release(false) }

// Release releases the slot. Later calls have no effect.
func (s *Slot) Release() { s.release(true) }

// release checks and marks the slot under one lock: a concurrent Drop must not
// release a slot for which Keep returned true.
func (s *Slot) release(alsoKept bool) {
	s.mu.Lock()
	if s.released || s.kept && !alsoKept {
		s.mu.Unlock()
		return
	}
	s.released = true
	s.mu.Unlock()
	p := s.share.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	s.share.held--
	if p.turn.IsZero() {
		p.beginTurn()
	}
	p.signalChange()
}

// ParseMaxStages parses the setting MAX_STAGES: a positive integer, or empty for no
// limit, for which it returns 0.
func ParseMaxStages(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("MAX_STAGES is %q: it must be a positive integer, or unset for no limit", s)
	}
	return n, nil
}
