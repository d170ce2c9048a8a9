package queue

import (
	"cmp"
	"slices"
)

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

	first *work  // nil when it is empty
	seq   uint64 // that of first: a decision that passes by need not look there
	list  []spot
	base  int         // list[0] is number base of all that were ever in the list
	last  uint64      // the list's youngest, at least
	holes int         // in the list, where works were taken out of its middle
	gaps  map[int]int // how many of them there are, by their blocks of the list
	back  order[*work]
}

// spot is a work's place in a lane's list. What has left keeps it until it is
// dropped: the list is in order all the time.
type spot struct {
	seq  uint64
	work *work
}

// block is that of a number in a lane's list.
func block(number int) int { return number >> 10 }

func (n *lane) before(o *lane) bool {
	if n.priority != o.priority {
		return n.priority > o.priority
	}
	return n.seq < o.seq
}

func (n *lane) place() *int { return &n.index }

// add puts a work in its place.
func (n *lane) add(w *work) {
	w.lane = n
	n.class.waiting++
	if len(n.list) == 0 || w.seq > n.last {
		n.list = append(n.list, spot{w.seq, w})
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
		n.leave(-w.index - 1)
		w.index = 0
		n.trim()
	}
	n.settle()
}

// leave takes the work of a number out of the list. That makes a hole, but for the
// first one.
func (n *lane) leave(number int) {
	n.list[number-n.base].work = nil
	if number == n.base {
		n.list = n.list[1:]
		n.base++
		return
	}
	n.holes++
	if n.gaps == nil {
		n.gaps = map[int]int{}
	}
	n.gaps[block(number)]++
}

// dropFirst drops the list's first place, which is a hole.
func (n *lane) dropFirst() {
	b := block(n.base)
	if n.gaps[b]--; n.gaps[b] == 0 {
		delete(n.gaps, b)
	}
	n.list = n.list[1:]
	n.base++
	n.holes--
}

// trim drops the holes at the list's ends, and all of them once they are the
// most of it.
func (n *lane) trim() {
	for len(n.list) > 0 && n.list[0].work == nil {
		n.dropFirst()
	}
	if n.holes > 32 && n.holes > len(n.list)/2 {
		n.list = slices.DeleteFunc(n.list, func(s spot) bool { return s.work == nil })
		for i, s := range n.list {
			s.work.index = -(n.base + i + 1)
		}
		n.holes, n.gaps = 0, nil
	}
	if len(n.list) == 0 {
		n.list, n.base, n.gaps = nil, 0, nil
	}
}

// settle finds the lane's new place where it stands.
func (n *lane) settle() {
	n.first = nil
	if len(n.list) > 0 {
		n.first, n.seq = n.list[0].work, n.list[0].seq
	}
	if len(n.back) > 0 && (n.first == nil || n.back[0].seq < n.seq) {
		n.first, n.seq = n.back[0], n.back[0].seq
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
	for _, s := range n.list {
		if s.work != nil && !yield(s.work) {
			return
		}
	}
	for _, w := range n.back {
		if !yield(w) {
			return
		}
	}
}

// ahead counts those that come before w, of this lane or of another one. It looks at
// none of them but those that came back late.
func (n *lane) ahead(w *work) int {
	if n.priority < w.Priority {
		return 0
	}
	count := len(n.list) - n.holes + len(n.back)
	if n.priority > w.Priority {
		return count
	}
	i, _ := slices.BinarySearchFunc(n.list, w.seq, func(s spot, seq uint64) int { return cmp.Compare(s.seq, seq) })
	count = i - n.holesBefore(i)
	n.back.walk(func(o *work) bool {
		if !o.before(w) {
			return false
		}
		count++
		return true
	})
	return count
}

// holesBefore counts the holes in the first part of the list.
func (n *lane) holesBefore(end int) (count int) {
	if n.holes == 0 {
		return 0
	}
	last := block(n.base + end)
	for b := block(n.base); b < last; b++ {
		count += n.gaps[b]
	}
	for i := max(0, last<<10-n.base); i < end; i++ {
		if n.list[i].work == nil {
			count++
		}
	}
	return count
}
