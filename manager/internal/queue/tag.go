package queue

import "math/bits"

// tag is what delegates have and selectors ask for. Only those that some class
// asks for matter to a decision.
type tag struct {
	name    string
	askers  int    // classes
	bit     uint64 // in the masks of crews and classes; 0 while nobody asks
	holders map[*delegate]struct{}
	crews   map[*crew]struct{} // of the holders, while somebody asks
	lines   [2]*line           // by kind, while a class queues there
}

// shared is the bit of all tags for which there is no bit of their own.
const shared = uint64(1) << 63

// tag finds or makes a tag.
func (a *account) tag(name string) *tag {
	t := a.tags[name]
	if t == nil {
		t = &tag{name: name, holders: map[*delegate]struct{}{}, crews: map[*crew]struct{}{}}
		a.tags[name] = t
	}
	return t
}

// ask counts a class that asks for a tag. With the first one, its holders are
// told from those who do not have it.
func (a *account) ask(name string) *tag {
	t := a.tag(name)
	if t.askers++; t.askers > 1 {
		return t
	}
	if t.bit = shared; ^a.bits&^shared != 0 {
		t.bit = 1 << bits.TrailingZeros64(^a.bits)
		a.bits |= t.bit
	}
	for d := range t.holders {
		a.crewUp(d)
	}
	return t
}

func (a *account) unask(t *tag) {
	if t.askers--; t.askers > 0 {
		return
	}
	if t.bit != shared {
		a.bits &^= t.bit
	}
	t.bit = 0
	for d := range t.holders {
		a.crewUp(d)
	}
	a.tidy(t)
}

func (a *account) tidy(t *tag) {
	if t.askers == 0 && len(t.holders) == 0 {
		delete(a.tags, t.name)
	}
}

// hold makes the delegate a holder of its tags, and no more of those of before.
func (a *account) hold(d *delegate, names map[string]bool) {
	for name := range d.tags {
		if !names[name] {
			t := a.tags[name]
			delete(t.holders, d)
			a.tidy(t)
		}
	}
	for name := range names {
		a.tag(name).holders[d] = struct{}{}
	}
	d.tags = names
}

// line is where classes of one kind that ask for one tag queue for the
// delegates that have it. Each class queues in one line, each crew serves those
// of all its tags.
type line struct {
	tag   *tag
	kind  kind
	lanes order[*lane]  // that are not empty
	crews order[*stall] // that have somebody free
	all   map[*crew]*stall
	users int // classes
}

// stall is a crew's place in a line.
type stall struct {
	crew  *crew
	line  *line
	best  rank // of the crew's first, while it is in the order
	index int
}

func (s *stall) before(o *stall) bool { return s.best.before(&o.best) }
func (s *stall) place() *int          { return &s.index }

// lineAt finds or makes a line, for one class more.
func (a *account) lineAt(t *tag, k kind) *line {
	l := t.lines[k]
	if l == nil {
		l = &line{tag: t, kind: k, all: map[*crew]*stall{}}
		t.lines[k] = l
		for c := range t.crews {
			c.serve(l)
		}
	}
	l.users++
	return l
}

// withdrawFrom takes a class out of a line and ends the line with its last.
func (a *account) withdrawFrom(l *line) {
	if l.users--; l.users > 0 {
		return
	}
	l.tag.lines[l.kind] = nil
	for c := range l.all {
		c.leave(l)
	}
}
