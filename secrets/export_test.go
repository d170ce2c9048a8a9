package secrets

import "slices"

// Needles are the texts that a set looks for.
func Needles(s *Set) []string {
	var all []string
	for _, f := range s.index().finders {
		for i := range f.needles.len() {
			all = append(all, string(f.needles.at(i)))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// NewPlainSet is NewSet without the encodings.
func NewPlainSet(values ...string) *Set {
	s := &Set{plain: true}
	s.Add(values...)
	return s
}

// Ready does what the first text would.
func Ready(s *Set) { s.index() }

// Deep builds the automaton, which the first text that looks like secrets would,
// and returns the number of its states.
func Deep(s *Set) int { return len(s.index().deep().nodes) }

// Tighten lets the finders spend only credit before the automaton takes over for
// so many bytes, again and again.
func Tighten(m *Masker, credit, bytes int) {
	m.c.budget = budget{credit, credit, bytes}
	m.c.findings.credit = credit
}

// AutomatonAtWork tells which of both the next write goes to.
func AutomatonAtWork(m *Masker) bool { return m.c.machine != nil }

// Finders is how many finders look at each text.
func Finders(s *Set) int { return len(s.index().finders) }

// Buffered is how much memory a masker's buffers have, in bytes.
func Buffered(m *Masker) int {
	return cap(m.c.store) + cap(m.c.out) + 16*(cap(m.c.covered)+cap(m.c.findings.spans))
}
