package queue

import "slices"

// Knows tells whether all that a delegate says of itself is known already: a
// heartbeat with the ID and Draining alone says the same.
func (q *Queue) Knows(account string, r Registration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, r.ID)
	if err != nil {
		return false
	}
	i := &d.info
	return (r.Name == "" || r.Name == i.Name) && (r.HostName == "" || r.HostName == i.HostName) &&
		(r.Type == "" || r.Type == i.Type) && (r.Version == "" || r.Version == i.Version) &&
		(r.Tags == nil || slices.Equal(r.Tags, i.Tags)) && (r.Types == nil || slices.Equal(r.Types, i.Types))
}
