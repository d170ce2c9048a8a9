package queue

import (
	"slices"
	"strconv"
	"strings"
)

// kind tells works that hold a slot from those that do not.
type kind int

const (
	singles kind = iota
	stages
)

func kindOf(stage bool) kind {
	if stage {
		return stages
	}
	return singles
}

// class is works that need the same of a delegate's tags and types.
type class struct {
	acc      *account
	key      string
	kind     kind
	tags     []*tag
	mask     uint64 // the bits of tags
	rest     []*tag // those of them that share their bit
	variants []Variant
	spelled  []string // the selectors of one of its works

	groups []*group // all of whose limits count for it; none for single tasks

	line    *line // where it queues
	plain   []*lane
	picky   map[string]*lane // with refusals, by them
	waiting int              // its works that wait
	entered int              // of all that have come
	members int              // its works that have not ended
}

// unused is how many classes without a work are kept for works to come.
const unused = 1024

// needs appends the key of the work's class to b.
func (w *Work) needs(b []byte) []byte {
	var few [8]string
	selectors := few[:0]
	for _, s := range w.Selectors {
		selectors = append(selectors, fold(s))
	}
	slices.Sort(selectors)
	b = strconv.AppendBool(b, w.Stage)
	for _, s := range slices.Compact(selectors) {
		b = strconv.AppendQuote(b, s)
	}
	for _, v := range w.Variants {
		b = append(b, '|')
		for _, t := range v.Types {
			b = strconv.AppendQuote(b, t)
		}
	}
	for _, g := range w.groupNames(few[:0]) {
		b = append(b, '#')
		b = strconv.AppendQuote(b, g)
	}
	return b
}

// groupNames appends the names of the groups to which the work belongs to few, in
// order.
func (w *Work) groupNames(few []string) []string {
	if !w.Stage {
		return nil
	}
	names := append(append(few, ""), w.Groups...) // all belong to their account's
	slices.Sort(names)
	return slices.Compact(names)
}

// join makes a work a member of its class.
func (a *account) join(w *work, like *Work, key []byte) {
	selectors := like.Selectors
	c := a.classes[string(key)]
	if c == nil {
		c = a.newClass(like, string(key))
	}
	if c.members == 0 {
		a.idle--
	}
	c.members++
	w.class = c
	w.Selectors = &c.spelled // one copy for all
	if !slices.Equal(c.spelled, selectors) {
		own := slices.Clone(selectors)
		w.Selectors = &own
	}
}

func (a *account) newClass(w *Work, key string) *class {
	c := &class{acc: a, key: key, kind: kindOf(w.Stage), spelled: slices.Clone(w.Selectors)}
	for _, v := range w.Variants {
		c.variants = append(c.variants, Variant{Types: slices.Clone(v.Types)})
	}
	names := map[string]bool{}
	for _, s := range w.Selectors {
		if s = fold(s); !names[s] {
			names[s] = true
			t := a.ask(s)
			c.tags = append(c.tags, t)
			c.mask |= t.bit
			if t.bit == shared {
				c.rest = append(c.rest, t)
			}
		}
	}
	for _, name := range w.groupNames(nil) {
		g := a.group(name)
		g.classes++
		c.groups = append(c.groups, g)
	}
	a.classes[key] = c
	a.idle++
	return c
}

// quit ends the membership of one of a class's works.
func (a *account) quit(c *class) {
	c.members--
	if c.members > 0 {
		return
	}
	if a.idle++; a.idle > unused && a.idle > len(a.classes)/2 {
		a.dropIdle()
	}
}

func (a *account) dropIdle() {
	for key, c := range a.classes {
		if c.members > 0 {
			continue
		}
		delete(a.classes, key)
		if c.line != nil {
			a.withdrawFrom(c.line)
		}
		for _, t := range c.tags {
			a.unask(t)
		}
		for _, g := range c.groups {
			g.classes--
			a.tidyGroup(g)
		}
	}
	a.idle = 0
}

// enter puts a work where it waits.
func (c *class) enter(w *work) {
	if c.waiting == 0 || c.entered%1024 == 0 {
		c.queueUp()
	}
	c.entered++
	c.lane(w).add(w)
}

// lane finds or makes the work's lane.
func (c *class) lane(w *work) *lane {
	var no []string
	for id, f := range w.was {
		if f == refused {
			no = append(no, id)
		}
	}
	if len(no) == 0 {
		for _, n := range c.plain {
			if n.priority == w.Priority {
				return n
			}
		}
		n := &lane{class: c, priority: w.Priority}
		c.plain = append(c.plain, n)
		return n
	}
	slices.Sort(no)
	key := strconv.Itoa(int(w.Priority)) + " " + strings.Join(no, " ")
	n := c.picky[key]
	if n == nil {
		n = &lane{class: c, priority: w.Priority, refused: no, key: key}
		if c.picky == nil {
			c.picky = map[string]*lane{}
		}
		c.picky[key] = n
	}
	return n
}

// lanes are the class's lanes, empty ones included.
func (c *class) lanes(yield func(*lane) bool) {
	for _, n := range c.plain {
		if !yield(n) {
			return
		}
	}
	for _, n := range c.picky {
		if !yield(n) {
			return
		}
	}
}

// oldest is the first of the class's works to have come, nil when none waits.
func (c *class) oldest() *work {
	var oldest *work
	for n := range c.lanes {
		if n.first != nil && (oldest == nil || n.first.seq < oldest.seq) {
			oldest = n.first
		}
	}
	return oldest
}

// queueUp chooses the line in which the class queues: that of the selector which
// the fewest delegates have, since a decision looks at its neighbours there.
func (c *class) queueUp() {
	best := c.acc.everyone
	for _, t := range c.tags {
		if len(t.holders) < len(best.holders) || best == c.acc.everyone {
			best = t
		}
	}
	if c.line != nil && len(best.holders) >= len(c.line.tag.holders) {
		return
	}
	old := c.line
	if old != nil {
		for n := range c.lanes {
			if n.parked == nil {
				old.lanes.remove(n)
			}
		}
	}
	c.line = c.acc.lineAt(best, c.kind)
	for n := range c.lanes {
		if n.first != nil && n.parked == nil {
			c.line.lanes.fix(n)
		}
	}
	if old != nil {
		c.acc.withdrawFrom(old)
	}
}
