package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Slots counts the stages that a delegate runs (rule Q1). The poller takes a slot
// before it acquires an init task. The transaction that the init opens keeps the
// slot until its cleanup is done. Slots is safe for concurrent use.
type Slots struct {
	max int

	mu     sync.Mutex
	used   int
	change chan struct{} // closed when used changes, then replaced
}

// NewSlots returns max free slots. Zero means no limit. It panics if max is
// negative.
func NewSlots(max int) *Slots {
	if max < 0 {
		panic(fmt.Sprintf("capacity: the number of slots is %d: it must not be negative", max))
	}
	return &Slots{max: max, change: make(chan struct{})}
}

// Slot is the slot of one stage. It is safe for concurrent use.
type Slot struct {
	slots *Slots

	mu       sync.Mutex
	kept     bool
	released bool
}

// Take takes a slot if one is free.
func (s *Slots) Take() (*Slot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.max > 0 && s.used >= s.max {
		return nil, false
	}
	return s.takeLocked(), true
}

// Force takes a slot even if none is free. It is for existing stages: a
// transaction that survived a restart counts even above the limit.
func (s *Slots) Force() *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked()
}

// takeLocked takes a slot. The caller holds mu.
func (s *Slots) takeLocked() *Slot {
	s.used++
	s.signalChange()
	return &Slot{slots: s}
}

// signalChange wakes the goroutines that wait on Changed. The caller holds mu.
func (s *Slots) signalChange() {
	close(s.change)
	s.change = make(chan struct{})
}

// Max returns the number of slots, 0 if there is no limit.
func (s *Slots) Max() int { return s.max }

// Used returns the number of taken slots. It exceeds Max only after [Slots.Force].
func (s *Slots) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Changed returns a channel that is closed at the next change of Used. A caller
// that waits for a slot calls Changed before Used, so that it misses no change.
func (s *Slots) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change
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
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.slots.used--
	s.slots.signalChange()
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
