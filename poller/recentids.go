package poller

import "time"

// An acquired task is remembered while the manager lists it and at least
// rememberFor longer, unless more than rememberMax tasks come in that time: a
// manager may list a task again although it has the answer (rule P2).
const (
	rememberFor = time.Hour
	rememberMax = 1 << 15
)

// recentIDs is a set of task ids that forgets old ones. It has two generations:
// when the younger one is full or old, it replaces the older one, so forgetting
// costs nothing.
type recentIDs struct {
	young, old map[string]struct{}
	since      time.Time // the begin of the younger generation
}

func newRecentIDs() *recentIDs { return &recentIDs{young: map[string]struct{}{}} }

func (m *recentIDs) add(id string, now time.Time) {
	if now.Sub(m.since) >= rememberFor || len(m.young) >= rememberMax {
		m.young, m.old, m.since = map[string]struct{}{}, m.young, now
	}
	m.young[id] = struct{}{}
}

// contains reports whether id was added, and prevents that it is forgotten.
func (m *recentIDs) contains(id string, now time.Time) bool {
	if _, ok := m.young[id]; ok {
		return true
	}
	if _, ok := m.old[id]; !ok {
		return false
	}
	m.add(id, now)
	return true
}
