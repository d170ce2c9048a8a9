package queue

// Label is what people call a delegate: its name, or its id without one. It is
// empty for an unknown one.
func (q *Queue) Label(account, delegate string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d, err := q.delegate(account, delegate); err == nil {
		return d.label()
	}
	return ""
}
