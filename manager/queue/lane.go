package queue

import "slices"

// lane is what waits of one class with one priority and the same refusals: what
// holds for the first holds for all. It is a list, since nearly everything comes
// in the order of its age, and an [order] of what came back later than younger
// works. A pass through the lane touches nothing but its ends, however long it is.
type lane struct {
	class    *class
	priority Priority
	refused  []string // ids of delegates, sorted, never changed; nil in a plain lane
	key      string   // in class.picky
	index    int      // in the order of its line, or of the group that it is parked at
	parked   *group   // where it waits instead of in its line, see group.go

	first *work // nil when it is empty
	list  []*work
	base  int    // list[0] is number base of all that were ever in the list
	last  uint64 // the list's youngest, at least
	holes int    // in the list, where works were taken out of its middle
	back  order[*work]
}

func (n *lane) before(o *lane) bool {
	if n.priority != o.priority {
		return n.priority > o.priority
	}
	return n.first.seq < o.first.seq
}

func (n *lane) place() *int { return &n.index }

// add puts a work in its place.
func (n *lane) add(w *work) {
	w.lane = n
	n.class.waiting++
	if len(n.list) == 0 || w.seq > n.last {
		n.list = append(n.list, w)
		n.last = w.seq
		w.index = -(n.base + len(n.list)) // below zero: in the list
	} else {
		n.back.fix(w)
	}
	n.settle()
}

// take takes a work out.
func (n *lane) take(w *work) {
	w.lane = nil
	n.class.waiting--
	if w.index > 0 {
		n.back.remove(w)
	} else {
		n.list[-w.index-1-n.base] = nil
		n.holes++
		w.index = 0
		n.trim()
	}
	n.settle()
}

// trim drops the holes at the list's ends, and all of them once they are the
// most of it.
func (n *lane) trim() {
	for len(n.list) > 0 && n.list[0] == nil {
		n.list = n.list[1:]
		n.base++
		n.holes--
	}
	if n.holes > 32 && n.holes > len(n.list)/2 {
		n.list = slices.DeleteFunc(n.list, func(w *work) bool { return w == nil })
		for i, w := range n.list {
			w.index = -(n.base + i + 1)
		}
		n.holes = 0
	}
	if len(n.list) == 0 {
		n.list, n.base = nil, 0
	}
}

// settle finds the lane's new place where it stands.
func (n *lane) settle() {
	n.first = nil
	if len(n.list) > 0 {
		n.first = n.list[0]
	}
	if len(n.back) > 0 && (n.first == nil || n.back[0].before(n.first)) {
		n.first = n.back[0]
	}
	where := &n.class.line.lanes
	if n.parked != nil {
		where = &n.parked.parked
	}
	if n.first != nil {
		where.fix(n)
		return
	}
	where.remove(n)
	n.parked = nil
	if n.refused != nil {
		delete(n.class.picky, n.key)
	}
}

// works are all that wait here, in no order.
func (n *lane) works(yield func(*work) bool) {
	for _, w := range n.list {
		if w != nil && !yield(w) {
			return
		}
	}
	for _, w := range n.back {
		if !yield(w) {
			return
		}
	}
}
