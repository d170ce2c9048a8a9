package queuelog

// Stages is how many stages the writer keeps in mind.
func (w *Writer) Stages() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries)
}
