package secrets

import "slices"

// The limits of a Resolver.
const (
	MaxValue   = maxValue
	MaxDerived = maxDerived
	MaxDepth   = maxDepth
	MaxFetches = maxFetches
)

// Patterns returns the patterns that a set searches for.
func Patterns(s *Set) []string {
	var all []string
	for _, m := range s.index().matchers {
		for i := range m.patterns.len() {
			all = append(all, string(m.patterns.at(i)))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// NewPlainSet returns a set that makes no encoded forms.
func NewPlainSet(values ...string) *Set {
	s := &Set{plain: true}
	s.Add(values...)
	return s
}

// BuildIndex builds the index, which otherwise the first text would do.
func BuildIndex(s *Set) { s.index() }

// BuildAutomaton builds the automaton and returns the number of its states.
func BuildAutomaton(s *Set) int { return len(s.index().automaton().nodes) }

// LimitMatchers sets the credit of the matchers, at the beginning and after each use
// of the automaton, and the number of bytes for which the automaton is used.
func LimitMatchers(m *Masker, credit, automatonBytes int) {
	m.stream.budget = searchBudget{credit, credit, automatonBytes}
	m.stream.matches.credit = credit
}

// UsesAutomaton reports whether the automaton searches the next write.
func UsesAutomaton(m *Masker) bool { return m.stream.automaton != nil }

// Matchers returns the number of matchers that search each text.
func Matchers(s *Set) int { return len(s.index().matchers) }

// BufferSize returns the size of a masker's buffers, in bytes.
func BufferSize(m *Masker) int {
	size := bufferSize(&m.stream) + 16*cap(m.stream.dumps.masked)
	for _, r := range m.stream.dumps.readings {
		if r != nil {
			size += bufferSize(&r.stream) + cap(r.decoded) + 8*cap(r.at)
		}
	}
	return size
}

func bufferSize(s *stream) int {
	return cap(s.buf) + cap(s.out) + 16*(cap(s.masked)+cap(s.found)+cap(s.matches.matches))
}
