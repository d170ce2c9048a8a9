package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Slots counts the stages that a delegate runs (SPEC Q1). The poller takes a
// slot for an init task before it acquires the task; the transaction that the
// init opens keeps it until its cleanup is done. Safe for concurrent use.
type Slots struct {
	max int

	mu    sync.Mutex
	used  int
	watch chan struct{} // closed when the count changes, then replaced
}

// NewSlots makes max slots; 0 is no bound. It panics when max is negative.
func NewSlots(max int) *Slots {
	if max < 0 {
		panic(fmt.Sprintf("capacity: %d slots", max))
	}
	return &Slots{max: max, watch: make(chan struct{})}
}

// Slot is one stage's claim. Safe for concurrent use.
type Slot struct {
	slots *Slots

	mu       sync.Mutex
	kept     bool
	released bool
}

// Take claims a slot, when one is free.
func (s *Slots) Take() (*Slot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.max > 0 && s.used >= s.max {
		return nil, false
	}
	return s.take(), true
}

// Force claims a slot even when none is free. It is for stages that exist
// already: a transaction that survived a restart counts, whatever the limit
// says now.
func (s *Slots) Force() *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

func (s *Slots) take() *Slot {
	s.used++
	s.changed()
	return &Slot{slots: s}
}

// changed wakes the watchers. The caller holds mu.
func (s *Slots) changed() {
	close(s.watch)
	s.watch = make(chan struct{})
}

// Max is the number of slots, 0 when there is no bound.
func (s *Slots) Max() int { return s.max }

// Used is the number of slots taken. It exceeds Max only after [Slots.Force].
func (s *Slots) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Changed is closed when the number of slots taken has changed. Ask for it
// before looking at Used, and wait on it after.
func (s *Slots) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watch
}

// Keep makes the slot outlive the task that it was taken for: [Slot.Drop] has
// no effect any more, [Slot.Release] has. It reports false when the slot has
// been released already.
func (s *Slot) Keep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = !s.released
	return s.kept
}

// Drop releases the slot unless somebody keeps it. The poller calls it when the
// init task has ended.
func (s *Slot) Drop() { s.end(true) }

// Release gives the slot back. Only the first call counts.
func (s *Slot) Release() { s.end(false) }

// end decides and marks under one lock: a Keep that reported true must not lose
// the slot to a Drop at the same time.
func (s *Slot) end(unlessKept bool) {
	s.mu.Lock()
	stays := s.released || unlessKept && s.kept
	s.released = s.released || !stays
	s.mu.Unlock()
	if stays {
		return
	}
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.slots.used--
	s.slots.changed()
}

// ParseMaxStages reads MAX_STAGES: a positive integer, or empty for no bound,
// which it returns as 0. Anything else is an error that says so.
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
