package secrets

// stream is the masking state of one text. It decides about a byte as soon as no
// later text can change the decision. So it holds back an unmasked byte only if the
// byte lies in the open suffix: the longest end of the text that is a proper
// prefix of a pattern.
//
// Matchers search the text. While the text resembles patterns so often that the
// matchers would be slow, the automaton searches it instead.
type stream struct {
	index *index

	// buf[start:] is the end of the text: the bytes that are not decided, and the
	// open suffix. base is the offset of its first byte in the text.
	buf   []byte
	start int
	base  int64

	open    int64      // offset of the open suffix
	floor   int64      // the previous open: no match of a value that is known since then begins before it
	decided int64      // all bytes before this offset are written or replaced
	masked  []interval // masked bytes from decided on, sorted and disjoint
	done    int        // the first done elements of masked are decided
	inMask  bool       // the byte before decided was masked
	matched bool       // a pattern was found in this text
	out     []byte

	// context is the end of the decided text that a form with a break may begin with.
	// It is not in buf. It is empty while text is held.
	context []byte
	broken  brokenState

	lines lineStarts // of the text of the current search
	dumps dumps
	// inRows means that the text is a reading of dumps. Its decided intervals go to
	// found, and there is no output.
	inRows bool
	found  []interval

	budget    searchBudget
	matches   matchList
	automaton *automaton // nil while the matchers search
	state     int32      // of the automaton
	remaining int        // bytes until the matchers search again
}

// The credit limits the time that the matchers spend on comparing patterns. Its unit is
// about 5 ns. They earn one unit for each byte of text, which is about the
// time that the automaton takes for it, and may save some. So a text that resembles patterns on
// purpose costs at most about as much as both searches together.
const (
	initialCredit  = 80 << 10 // 0.4 ms; the automaton has to be built afterwards
	renewedCredit  = 16 << 10
	automatonBytes = 1 << 20
)

// searchBudget has the matchers' credit at the beginning of a text and after each
// use of the automaton, and the number of bytes for which the automaton is used.
type searchBudget struct{ initial, renewed, automatonBytes int }

// newStream returns the state at the beginning of a text.
func newStream(x *index) stream {
	b := searchBudget{initialCredit, renewedCredit, automatonBytes}
	return stream{index: x, budget: b, matches: matchList{credit: b.initial}}
}

// write appends text and returns the output that is decided. The output may be a
// part of text. It is valid until the next call.
func (s *stream) write(text []byte) []byte {
	held := len(s.buf) - s.start
	if held+len(text) == 0 {
		return nil
	}
	if held == 0 && len(s.context) > 0 && s.continues(text) {
		held = s.holdContext()
	}
	s.context = s.context[:0]
	if held > 0 {
		if s.start > len(s.buf)/2 {
			// Moving only half-empty buffers moves each byte once on average,
			// even if the writes are short.
			s.buf, s.start = s.buf[:copy(s.buf, s.buf[s.start:])], 0
		}
		s.buf = append(s.buf, text...)
		text = s.buf[s.start:]
	}
	s.search(text, held)
	if s.done < len(s.masked) {
		s.out = s.out[:0]
		s.emit(text, s.open)
		s.discardDecided(text, held)
		return s.out
	}
	var unchanged []byte
	if s.open > s.decided {
		unchanged = text[s.decided-s.base : s.open-s.base]
		s.decided, s.inMask = s.open, false
	}
	s.discardDecided(text, held)
	return unchanged
}

// holdContext moves the context to buf, which holds no text. It returns the length.
func (s *stream) holdContext() int {
	n := len(s.context)
	s.buf, s.start = append(s.buf[:0], s.context...), 0
	s.base -= int64(n)
	s.context = s.context[:0]
	return n
}

// flush decides about all bytes and returns the output. If later text completes a
// pattern, only the bytes after the flush are masked.
func (s *stream) flush() []byte {
	held := s.buf[s.start:]
	s.dumps.flush(s, held)
	s.out = s.out[:0]
	s.emit(held, s.base+int64(len(held)))
	return s.out
}

// undecided returns the masked intervals that are not decided.
func (s *stream) undecided() []interval { return s.masked[s.done:] }

// restart begins a new text without undecided bytes.
func (s *stream) restart(x *index) {
	end := s.base + int64(len(s.buf)-s.start)
	s.buf, s.start, s.context = s.buf[:0], 0, s.context[:0]
	s.base, s.open, s.floor, s.decided = end, end, end, end
	s.masked, s.done, s.inMask = s.masked[:0], 0, false
	s.state, s.broken.on = 0, false
	if s.index != x {
		s.index, s.automaton = x, nil
	}
}

// setIndex replaces the index by one that has all its patterns and more. It searches
// the held text again, which contains every undecided interval and the open suffix.
func (s *stream) setIndex(x *index) {
	s.index, s.automaton = x, nil
	if s.start == len(s.buf) {
		s.holdContext()
	}
	held := s.buf[s.start:]
	s.search(held, len(held))
}

// search finds the masked intervals and the open suffix of text, which begins with
// the held text. Its bytes from offset first on are new.
func (s *stream) search(text []byte, first int) {
	s.lines.known, s.lines.at = false, s.lines.at[:0]
	s.searchText(text, first)
	if !s.inRows {
		s.dumps.scan(s, text, first, &s.lines)
	}
}

// searchText is search without dumps.
func (s *stream) searchText(text []byte, first int) {
	s.floor = s.open
	if s.automaton == nil {
		if s.runMatchers(text, first) {
			return
		}
		s.automaton, s.state, s.remaining = s.index.automaton(), 0, s.budget.automatonBytes
		s.broken.on = false
		s.masked, s.done = s.masked[:0], 0
		first = int(s.floor - s.base)
		s.readContext(text[:first])
	}
	s.runAutomaton(text, first)
	if s.remaining -= len(text) - first; s.remaining <= 0 {
		s.automaton = nil
		s.matches.credit = s.budget.renewed
	}
}

// runMatchers searches all of text with the matchers. Searching held text again
// costs credit. It reports false if the credit is used up.
func (s *stream) runMatchers(text []byte, first int) bool {
	l := &s.matches
	l.credit += 1 + (len(text) - first) - first/16
	l.credit = min(l.credit, s.budget.initial)
	l.matches, l.floor = l.matches[:0], int(s.floor-s.base)
	open := len(text)
	for _, m := range s.index.matchers {
		open = min(open, m.search(text, l))
		if l.credit < 0 {
			return false
		}
	}
	if s.index.broken {
		s.lines.known = true
		open = min(open, s.index.searchBreaks(text, l, &s.lines))
		if l.credit < 0 {
			s.lines.known = false
			return false
		}
	}
	s.masked, s.done = s.masked[:0], 0
	if len(l.matches) > 0 {
		l.merge()
		for _, m := range l.matches {
			s.addMatch(s.base+int64(m.from), s.base+int64(m.to))
		}
	}
	s.open = s.base + int64(open)
	return true
}

// readContext steps the automaton over the context before the text that it searches.
func (s *stream) readContext(context []byte) {
	var state int32
	var previous byte
	for i, b := range context {
		before := state
		state = s.automaton.step(state, previous, b)
		s.stepBroken(before, state, previous, b, s.base+int64(i))
		previous = b
	}
	if state > 0 && !s.broken.on {
		s.broken = brokenState{on: true, state: state, previous: previous, breaks: s.broken.breaks[:0]}
	}
}

// runAutomaton searches text from offset first on with the automaton.
func (s *stream) runAutomaton(text []byte, first int) {
	a, state := s.automaton, s.state
	for i := first; i < len(text); i++ {
		b, before := text[i], state
		if n := &a.nodes[state]; n.chained && n.chainByte == b {
			state++
		} else if state == 0 {
			state = a.start[b]
		} else {
			state = a.step(state, text[i-1], b) // text has at least as many bytes as the state
		}
		if n := int64(a.nodes[state].longest); n > 0 {
			end := s.base + int64(i) + 1
			if k := len(s.masked) - 1; k >= s.done && s.masked[k].from <= end-n && end-n <= s.masked[k].to && end-n >= s.floor {
				s.masked[k].to = end
			} else {
				s.addMatch(end-n, end)
			}
			state = a.skipLeaves(state)
		}
		if s.broken.on || b == '\n' || b == '\r' || b == '=' {
			var previous byte
			if i > 0 {
				previous = text[i-1]
			}
			s.stepBroken(before, state, previous, b, s.base+int64(i))
		}
	}
	s.state = state
	s.open = s.base + int64(len(text)) - int64(a.depth[state])
	if s.broken.on {
		s.open = min(s.open, s.broken.open(a, s.floor, s.base+int64(len(text))))
	}
}

// addMatch masks the bytes of a match. A match must end after the beginning of the last
// masked interval.
func (s *stream) addMatch(from, to int64) {
	if to <= s.decided || from < s.floor {
		return // found again in held text
	}
	s.matched = true
	from = max(from, s.decided)
	n := len(s.masked)
	for n > s.done && s.masked[n-1].to >= from {
		n--
		from, to = min(from, s.masked[n].from), max(to, s.masked[n].to)
	}
	s.masked = append(s.masked[:n], interval{from, to})
}

// emit decides about all bytes before offset until, and about masked intervals that
// begin there or earlier. The first byte of text has the offset base.
func (s *stream) emit(text []byte, until int64) {
	for ; s.done < len(s.masked); s.done++ {
		iv := s.masked[s.done]
		if iv.from > max(until, s.decided) {
			break
		}
		s.emitPlain(text, iv.from)
		switch {
		case s.inRows:
			s.found = append(s.found, iv)
		case !s.inMask:
			s.out = append(s.out, Replacement...)
			s.inMask = true
		}
		s.decided = iv.to
	}
	if s.done > len(s.masked)/2 {
		s.masked = s.masked[:copy(s.masked, s.masked[s.done:])]
		s.done = 0
	}
	s.emitPlain(text, until)
}

// emitPlain outputs the undecided bytes before offset to, unchanged.
func (s *stream) emitPlain(text []byte, to int64) {
	if to <= s.decided {
		return
	}
	if !s.inRows {
		s.out = append(s.out, text[s.decided-s.base:to-s.base]...)
	}
	s.decided, s.inMask = to, false
}

// discardDecided keeps only the open suffix of text: all bytes before it are
// decided. If held is not 0, text lies in buf already. The discarded bytes are not
// overwritten, because write may return them.
func (s *stream) discardDecided(text []byte, held int) {
	from, n := 0, int(s.open-s.base)
	switch {
	case n >= minHead && text[n-1] > '=' && n == len(text): // usually
		s.context = append(s.context[:0], text[n-3], text[n-2], text[n-1])
		from = n
	default:
		if from = contextOf(text[:n]); n == len(text) {
			s.context, from = append(s.context[:0], text[from:]...), n
		}
	}
	s.base += int64(from)
	switch {
	case held > 0:
		s.start += from
	case from < len(text) || len(s.buf) > 0:
		s.buf, s.start = append(s.buf[:0], text[from:]...), 0
	}
}
