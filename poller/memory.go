package poller

import "time"

// A task that was acquired is remembered for as long as the manager lists it and
// at least this much longer, unless more than so many come in that time: a
// manager may list a task again whose answer it has (SPEC P2).
const (
	rememberFor = time.Hour
	rememberMax = 1 << 15
)

// memory remembers ids in two generations, so that forgetting costs nothing: an
// id that nobody asks for while the younger generation fills up is gone with the
// older one.
type memory struct {
	young, old map[string]struct{}
	since      time.Time // when the younger one began
}

func newMemory() *memory { return &memory{young: map[string]struct{}{}} }

func (m *memory) add(id string, now time.Time) {
	if now.Sub(m.since) >= rememberFor || len(m.young) >= rememberMax {
		m.young, m.old, m.since = map[string]struct{}{}, m.young, now
	}
	m.young[id] = struct{}{}
}

// knows says whether an id was added, and keeps it from being forgotten.
func (m *memory) knows(id string, now time.Time) bool {
	if _, ok := m.young[id]; ok {
		return true
	}
	if _, ok := m.old[id]; !ok {
		return false
	}
	m.add(id, now)
	return true
}
