package secrets

// interval is a run of bytes that are masked, by their offsets in the text.
type interval struct{ from, to int64 }

// coverer does the masking. It decides on a byte as soon as no text that may
// follow can change the decision: a byte that is not masked is held back only
// while it lies in the longest end of the text that a needle begins with.
//
// Finders look for the needles. Where the text keeps looking like needles they
// would be slow, and the automaton takes over for a while.
type coverer struct {
	index *index

	// store[head:] is the end of the text: what is not decided, and what a needle
	// that is not complete begins with. base is the offset of its first byte.
	store   []byte
	head    int
	base    int64
	open    int64      // offset of the longest end of the text that a needle begins with
	decided int64      // offset up to which bytes have been passed on or masked
	covered []interval // masked bytes from decided on, in order, apart
	passed  int        // so many of covered, the first, are decided after all
	masking bool       // the byte before decided was masked
	found   bool       // a needle was found
	out     []byte

	budget   budget
	findings findings
	machine  *machine // the automaton, while it is at work
	state    int32
	left     int // bytes until the finders have another try
}

// What the finders may spend on places that look like needles, in units of about
// 5 ns: one for each byte of text, which is about what the automaton takes, and
// what they have saved. So text that is made to look like needles costs at most
// about what both take together.
const (
	firstCredit = 80 << 10 // 0.4 ms, before an automaton is built
	nextCredit  = 16 << 10
	deepBytes   = 1 << 20 // bytes that the automaton takes over
)

// budget is the credit at the start and after each time of the automaton's, and
// how many bytes that time takes.
type budget struct{ first, next, deep int }

// newCoverer is a coverer at the start of a text.
func newCoverer(x *index) coverer {
	b := budget{firstCredit, nextCredit, deepBytes}
	return coverer{index: x, budget: b, findings: findings{credit: b.first}}
}

// write takes text and returns what is decided, which may be a part of text. It
// is good until the next call.
func (c *coverer) write(text []byte) []byte {
	before := len(c.store) - c.head
	if before > 0 {
		if c.head > len(c.store)/2 {
			// So that each byte is moved once on average, however short the writes are.
			c.store, c.head = c.store[:copy(c.store, c.store[c.head:])], 0
		}
		c.store = append(c.store, text...)
		text = c.store[c.head:]
	}
	c.scan(text, before)
	if c.passed < len(c.covered) {
		c.out = c.out[:0]
		c.emit(text, c.open)
		c.keep(text, before)
		return c.out
	}
	var whole []byte
	if c.open > c.decided {
		whole = text[c.decided-c.base : c.open-c.base]
		c.decided, c.masking = c.open, false
	}
	c.keep(text, before)
	return whole
}

// flush decides on everything and returns it. A needle that is completed later
// is masked from here on.
func (c *coverer) flush() []byte {
	kept := c.store[c.head:]
	c.out = c.out[:0]
	c.emit(kept, c.base+int64(len(kept)))
	return c.out
}

// use goes on with another index, which has all needles of the last one. What is
// kept is looked at again: every interval that is not decided lies in it as a
// whole, and so does every needle that is not complete.
func (c *coverer) use(x *index) {
	c.index, c.machine = x, nil
	kept := c.store[c.head:]
	c.scan(kept, len(kept))
}

// scan finds what is covered in the kept text, of which the bytes from offset
// first on are new, and where it is open.
func (c *coverer) scan(text []byte, first int) {
	if c.machine == nil {
		if c.find(text, first) {
			return
		}
		c.machine, c.state, c.left = c.index.deep(), 0, c.budget.deep
		first = 0
		c.covered, c.passed = c.covered[:0], 0
	}
	c.step(text, first)
	if c.left -= len(text) - first; c.left <= 0 {
		c.machine = nil
		c.findings.credit = c.budget.next
	}
}

// find lets the finders look at all of the text. That they see some of it again
// is on their bill. It is false when they gave up.
func (c *coverer) find(text []byte, first int) bool {
	r := &c.findings
	r.credit += 1 + (len(text) - first) - first/16
	r.credit = min(r.credit, c.budget.first)
	r.spans = r.spans[:0]
	open := len(text)
	for _, f := range c.index.finders {
		open = min(open, f.scan(text, r))
		if r.credit < 0 {
			return false
		}
	}
	c.covered, c.passed = c.covered[:0], 0
	if len(r.spans) > 0 {
		r.merge()
		for _, s := range r.spans {
			c.cover(c.base+int64(s.from), c.base+int64(s.to))
		}
	}
	c.open = c.base + int64(open)
	return true
}

// step lets the automaton look at the text from offset first on.
func (c *coverer) step(text []byte, first int) {
	m, s := c.machine, c.state
	for i := first; i < len(text); i++ {
		b := text[i]
		if n := &m.nodes[s]; n.next && n.only == b {
			s++
		} else if s == 0 {
			s = m.start[b]
		} else {
			s = m.step(s, text[i-1], b) // as many bytes as s has are in the text
		}
		n := int64(m.nodes[s].longest)
		if n == 0 {
			continue
		}
		end := c.base + int64(i) + 1
		if k := len(c.covered) - 1; k >= c.passed && c.covered[k].from <= end-n && end-n <= c.covered[k].to {
			c.covered[k].to = end
		} else {
			c.cover(end-n, end)
		}
		s = m.settle(s)
	}
	c.state = s
	c.open = c.base + int64(len(text)) - int64(m.depth[s])
}

// cover masks the bytes of an occurrence. Occurrences arrive in the order of
// their ends.
func (c *coverer) cover(from, to int64) {
	if to <= c.decided {
		return // found again in kept text
	}
	c.found = true
	from = max(from, c.decided)
	n := len(c.covered)
	for n > c.passed && c.covered[n-1].to >= from {
		n--
		from = min(from, c.covered[n].from)
	}
	c.covered = append(c.covered[:n], interval{from, to})
}

// emit decides on everything before offset until, and beyond it on bytes that
// are masked for certain. The text begins at offset base.
func (c *coverer) emit(text []byte, until int64) {
	for ; c.passed < len(c.covered); c.passed++ {
		iv := c.covered[c.passed]
		if iv.from > max(until, c.decided) {
			break
		}
		c.plain(text, iv.from)
		if !c.masking {
			c.out = append(c.out, Replacement...)
			c.masking = true
		}
		c.decided = iv.to
	}
	if c.passed > len(c.covered)/2 {
		c.covered = c.covered[:copy(c.covered, c.covered[c.passed:])]
		c.passed = 0
	}
	c.plain(text, until)
}

// plain passes on the bytes before offset to.
func (c *coverer) plain(text []byte, to int64) {
	if to <= c.decided {
		return
	}
	c.out = append(c.out, text[c.decided-c.base:to-c.base]...)
	c.decided, c.masking = to, false
}

// keep forgets all of the text but its open end, of which nothing before is
// undecided. The text is in the store already if bytes were kept before it. What
// is forgotten stays where it is: it may be what write returns.
func (c *coverer) keep(text []byte, before int) {
	gone := int(c.open - c.base)
	c.base = c.open
	if before > 0 {
		c.head += gone
	} else {
		c.store, c.head = append(c.store[:0], text[gone:]...), 0
	}
}
