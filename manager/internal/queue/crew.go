package queue

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// crew is delegates that no class can tell apart: they have the same of the tags
// that are asked for, and the same types. A decision looks at one of each crew,
// the first, however many there are.
type crew struct {
	key     string
	mask    uint64
	tags    []*tag // asked for, and everyone
	has     map[*tag]bool
	types   map[string]bool // nil: all
	members map[*delegate]struct{}
	free    [2]order[*seat]     // who can take a work, by kind, while the crew has a stall
	stalls  [2]map[*line]*stall // in the lines of its tags
	tally   tally
}

// tally counts delegates, to say why something waits.
type tally struct {
	takers int // that take anything
	slots  int // of those without room for a stage
}

func (t *tally) add(o tally, sign int) {
	t.takers += sign * o.takers
	t.slots += sign * o.slots
}

// count is what the delegate counts for.
func (d *delegate) count() (t tally) {
	if !d.takes() {
		return t
	}
	t.takers = 1
	if d.free() <= 0 {
		t.slots = d.max
	}
	return t
}

// can tells whether the crew's delegates have what a class needs.
func (c *crew) can(k *class) bool {
	return c.tagged(k) && c.runs(k)
}

// tagged tells whether they have the tags, runs whether they have the types.
func (c *crew) tagged(k *class) bool {
	if k.mask&^c.mask != 0 {
		return false
	}
	for _, t := range k.rest {
		if !c.has[t] {
			return false
		}
	}
	return true
}

func (c *crew) runs(k *class) bool { return c.types == nil || variant(k.variants, c.types) >= 0 }

// seat is a delegate's place among its crew's for one kind of works.
type seat struct {
	d     *delegate
	rank  rank
	index int
}

func (s *seat) before(o *seat) bool { return s.rank.before(&o.rank) }
func (s *seat) place() *int         { return &s.index }

// rank is what SPEC Q2 orders delegates by. It is a copy, so that the orders
// stand while a delegate changes, until [account.settle].
type rank struct {
	free, slots, open int
	idle              instant
	order             uint64
}

func (r *rank) before(o *rank) bool {
	return cmp.Or(cmp.Compare(o.free, r.free), cmp.Compare(r.slots, o.slots), cmp.Compare(r.open, o.open),
		cmp.Compare(r.idle, o.idle), cmp.Compare(r.order, o.order)) < 0
}

// rank is the delegate's present one, and whether it may take a work at all.
func (d *delegate) rank(k kind) (r rank, ok bool) {
	r = rank{open: len(d.open), idle: d.idleSince, order: d.order}
	if k == stages {
		r.free, r.slots = d.free(), len(d.slots)
	}
	return r, d.takes() && (k == singles || r.free > 0)
}

// touch notes that a delegate's rank may have changed.
func (d *delegate) touch() {
	if !d.touched {
		d.touched = true
		d.acc.touched = append(d.acc.touched, d)
	}
}

// settle brings the orders up to date. What a delegate gives back and gets again
// in one go moves nothing.
func (a *account) settle() {
	for _, d := range a.touched {
		d.touched = false
		if d.crew != nil {
			d.crew.sit(d)
		}
	}
	clear(a.touched)
	a.touched = a.touched[:0]
}

// sit puts a delegate where it belongs among its crew.
func (c *crew) sit(d *delegate) {
	c.tally.add(d.counted, -1)
	d.counted = d.count()
	c.tally.add(d.counted, 1)
	for k := range d.seats {
		s := &d.seats[k]
		if len(c.stalls[k]) == 0 {
			continue
		}
		r, ok := d.rank(kind(k))
		switch {
		case ok && s.index > 0 && s.rank == r:
			continue
		case ok:
			s.rank = r
			c.free[k].fix(s)
		case s.index == 0:
			continue
		default:
			c.free[k].remove(s)
		}
		c.advertise(kind(k))
	}
}

// stand takes a delegate out of the orders.
func (c *crew) stand(d *delegate) {
	c.tally.add(d.counted, -1)
	d.counted = tally{}
	for k := range d.seats {
		if s := &d.seats[k]; s.index > 0 {
			c.free[k].remove(s)
			c.advertise(kind(k))
		}
	}
}

// advertise brings the crew's stalls up to date with its first.
func (c *crew) advertise(k kind) {
	for _, s := range c.stalls[k] {
		if len(c.free[k]) == 0 {
			s.line.crews.remove(s)
			continue
		}
		if first := c.free[k][0].rank; s.index == 0 || s.best != first {
			s.best = first
			s.line.crews.fix(s)
		}
	}
}

// serve gives the crew a stall in a line.
func (c *crew) serve(l *line) {
	if len(c.stalls[l.kind]) == 0 {
		for d := range c.members {
			d.touch()
		}
	}
	s := &stall{crew: c, line: l}
	l.all[c], c.stalls[l.kind][l] = s, s
	c.advertise(l.kind)
}

func (c *crew) leave(l *line) {
	l.crews.remove(l.all[c])
	delete(l.all, c)
	delete(c.stalls[l.kind], l)
	if len(c.stalls[l.kind]) > 0 {
		return
	}
	for _, s := range c.free[l.kind] {
		s.index = 0
	}
	c.free[l.kind] = nil
}

// crewUp puts a delegate into the crew that it belongs to.
func (a *account) crewUp(d *delegate) {
	var asked []*tag
	for name := range d.tags {
		if t := a.tags[name]; t.askers > 0 {
			asked = append(asked, t)
		}
	}
	slices.SortFunc(asked, func(x, y *tag) int { return cmp.Compare(x.name, y.name) })
	var key []byte
	for _, t := range asked {
		key = strconv.AppendQuote(key, t.name)
	}
	if d.types != nil {
		key = append(key, '|')
		for _, t := range slices.Sorted(maps.Keys(d.types)) {
			key = strconv.AppendQuote(key, t)
		}
	}
	c := a.crews[string(key)]
	if c == nil {
		c = a.newCrew(string(key), asked, d.types)
	}
	if c == d.crew {
		return
	}
	a.uncrew(d)
	d.crew = c
	c.members[d] = struct{}{}
	d.touch()
}

func (a *account) newCrew(key string, asked []*tag, types map[string]bool) *crew {
	c := &crew{
		key: key, tags: append(asked, a.everyone), has: map[*tag]bool{}, types: types,
		members: map[*delegate]struct{}{},
		stalls:  [2]map[*line]*stall{{}, {}},
	}
	a.crews[key] = c
	for _, t := range c.tags {
		c.has[t] = true
		c.mask |= t.bit
		t.crews[c] = struct{}{}
		for _, l := range t.lines {
			if l != nil {
				c.serve(l)
			}
		}
	}
	return c
}

// uncrew takes a delegate out of its crew, if it has one.
func (a *account) uncrew(d *delegate) {
	c := d.crew
	if c == nil {
		return
	}
	d.crew = nil
	c.stand(d)
	if delete(c.members, d); len(c.members) > 0 {
		return
	}
	delete(a.crews, c.key)
	for _, t := range c.tags {
		delete(t.crews, c)
		for _, l := range t.lines {
			if l != nil {
				c.leave(l)
			}
		}
	}
}
