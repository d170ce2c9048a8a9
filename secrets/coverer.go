package secrets

// interval is a run of bytes that are masked, by their offsets in the text.
type interval struct{ from, to int64 }

// coverer does the masking. It decides on a byte as soon as no text that may
// follow can change the decision: a byte that is not masked is held back only
// while it lies in the longest end of the text that a needle begins with.
type coverer struct {
	machine *machine
	state   int32

	// kept is the end of the text: what is not decided, and what a needle that
	// is not complete begins with. base is the offset of its first byte.
	kept    []byte
	base    int64
	decided int64      // offset up to which bytes have been passed on or masked
	covered []interval // masked bytes from decided on, in order, apart
	masking bool       // the byte before decided was masked
	found   bool       // a needle was found
}

// write takes text and appends to out what is decided.
func (c *coverer) write(out, text []byte) []byte {
	from := len(c.kept)
	c.kept = append(c.kept, text...)
	c.scan(from)
	return c.emit(out, c.end()-int64(c.machine.depth[c.state]))
}

// flush decides on everything. A needle that is completed later is masked from
// here on.
func (c *coverer) flush(out []byte) []byte {
	return c.emit(out, c.end())
}

// use goes on with another machine, which knows all needles of the last one.
// What is kept is looked at again: every interval that is not decided lies in it
// as a whole, and so does every needle that is not complete.
func (c *coverer) use(m *machine) {
	if m == c.machine {
		return
	}
	c.machine, c.state = m, 0
	c.covered = c.covered[:0]
	c.scan(0)
}

// end is the offset behind the text.
func (c *coverer) end() int64 { return c.base + int64(len(c.kept)) }

// scan looks for needles that end in the kept text after its first bytes.
func (c *coverer) scan(first int) {
	m, s := c.machine, c.state
	for i := first; i < len(c.kept); i++ {
		s = m.step(s, c.kept[i])
		if n := m.longest[s]; n > 0 {
			end := c.base + int64(i) + 1
			c.cover(end-int64(n), end)
		}
	}
	c.state = s
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
	for n > 0 && c.covered[n-1].to >= from {
		n--
		from = min(from, c.covered[n].from)
	}
	c.covered = append(c.covered[:n], interval{from, to})
}

// emit decides on everything before offset until, and beyond it on bytes that
// are masked for certain.
func (c *coverer) emit(out []byte, until int64) []byte {
	gone := 0
	for _, iv := range c.covered {
		if iv.from > until {
			break
		}
		out = c.plain(out, iv.from)
		if !c.masking {
			out = append(out, Replacement...)
			c.masking = true
		}
		c.decided = iv.to
		gone++
	}
	c.covered = c.covered[:copy(c.covered, c.covered[gone:])]
	out = c.plain(out, until)

	keep := min(c.decided, c.end()-int64(c.machine.depth[c.state]))
	c.kept = c.kept[:copy(c.kept, c.kept[keep-c.base:])]
	c.base = keep
	return out
}

// plain passes on the bytes before offset to.
func (c *coverer) plain(out []byte, to int64) []byte {
	if to <= c.decided {
		return out
	}
	out = append(out, c.kept[c.decided-c.base:to-c.base]...)
	c.decided, c.masking = to, false
	return out
}
