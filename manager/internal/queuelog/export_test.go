package queuelog

// Stages returns the number of stages in memory.
func (w *Writer) Stages() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries)
}
