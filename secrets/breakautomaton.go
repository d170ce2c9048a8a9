package secrets

import "slices"

// This file has the search of the automaton in the data of a text.

// brokenState is the state of the automaton over the data of a text. While it is off, it is
// the automaton's state over the text.
type brokenState struct {
	on       bool
	state    int32
	previous byte  // the last byte of state
	count    int64 // data since the state is on
	breaks   []breakMark

	pending byte // 0, or the kind of the last byte of a break that has begun
	indent  int
	// The state before the pending break. The fields above assume that it is not a break.
	saved         int32
	savedPrevious byte
	savedCount    int64
	from          int64   // offset of the pending break
	late          []match // matches that end in the pending break, by length and offset
}

// breakMark is a break, and the number of bytes of data before it.
type breakMark struct{ from, to, count int64 }

// Kinds of the last byte of a pending break.
const (
	pendingEqual = 1 + iota
	pendingCR
	pendingCRCR
	pendingLF
)

// stepBroken does a step with a byte at an offset. before and after are the automaton's
// states over the text.
func (s *stream) stepBroken(before, after int32, previous, b byte, at int64) {
	q := &s.broken
	if !q.on {
		if !mayBegin(previous, b) {
			return
		}
		*q = brokenState{on: true, state: before, previous: previous, breaks: q.breaks[:0], late: q.late[:0]}
	}
	switch {
	case q.pending == 0:
	case q.pending == pendingLF && isBlank(b) && q.indent < maxIndent:
		q.indent++
		s.dataByte(b, at)
		return
	case q.pending == pendingLF && !refutesBreak(b, q.indent):
		q.state, q.previous, q.count, q.pending = q.saved, q.savedPrevious, q.savedCount, 0
		q.addBreak(breakMark{q.from, at, q.count}, int64(s.automaton.depth[q.state]))
		s.dataByte(b, at)
		q.on = q.state != after
		return
	case q.pending < pendingLF && b == '\n':
		q.pending, q.indent = pendingLF, 0
		s.dataByte(b, at)
		return
	case q.pending < pendingCRCR && b == '\r':
		q.pending++
		s.dataByte(b, at)
		return
	default:
		q.pending = 0
		for _, m := range q.late {
			s.addBroken(int64(m.from), int64(m.to))
		}
	}
	if mayBegin(q.previous, b) {
		q.saved, q.savedPrevious, q.savedCount, q.from, q.late = q.state, q.previous, q.count, at, q.late[:0]
		switch b {
		case '=':
			q.pending = pendingEqual
		case '\r':
			q.pending = pendingCR
		default:
			q.pending, q.indent = pendingLF, 0
		}
	}
	s.dataByte(b, at)
	q.on = q.pending != 0 || q.state != after
}

// addBreak adds a break, and removes those that a match with the depth does not reach.
func (q *brokenState) addBreak(b breakMark, depth int64) {
	if n := len(q.breaks); n >= 64 && q.breaks[n/2].count <= b.count-depth {
		q.breaks = q.breaks[:copy(q.breaks, q.breaks[n/2:])]
	}
	q.breaks = append(q.breaks, b)
}

// dataByte does a step with a byte of data, and adds the longest match that ends there.
func (s *stream) dataByte(b byte, at int64) {
	q, a := &s.broken, s.automaton
	q.state = a.step(q.state, q.previous, b)
	q.previous = b
	q.count++
	n := int64(a.nodes[q.state].longest)
	if n == 0 {
		return
	}
	q.state = a.skipLeaves(q.state)
	switch {
	case n < minBroken:
	case q.pending != 0:
		q.late = append(q.late, match{int(q.count - n), int(at + 1)})
	default:
		s.addBroken(q.count-n, at+1)
	}
}

// addBroken masks a match that begins at an index of the data, if there is a break in it.
func (s *stream) addBroken(index, to int64) {
	if from, ok := s.broken.origin(index); ok {
		s.addMatch(from, to)
	}
}

// origin returns the offset at which masking begins for a match that begins at an index of the
// data. It reports whether there is a break after the index.
func (q *brokenState) origin(index int64) (from int64, ok bool) {
	i, _ := slices.BinarySearchFunc(q.breaks, index, func(b breakMark, index int64) int {
		if b.count <= index {
			return -1
		}
		return 1
	})
	if i == len(q.breaks) {
		return 0, false
	}
	b := q.breaks[i]
	if head := b.count - index; head >= minHead {
		return b.from - head, true
	}
	return b.to, true
}

// open returns the offset of the open suffix with a break in it that begins at floor or later,
// in a text that ends at end.
func (q *brokenState) open(a *automaton, floor, end int64) int64 {
	state, count := q.state, q.count
	if q.pending != 0 {
		state, count = q.saved, q.savedCount
	}
	for ; state != 0; state = a.nodes[state].failure {
		if !a.inLong[state] {
			continue
		}
		depth := int64(a.depth[state])
		from, ok := q.origin(count - depth)
		if !ok {
			if q.pending == 0 || depth < minHead {
				return end
			}
			from = q.from - depth
		}
		if from >= floor {
			return from
		}
	}
	return end
}
