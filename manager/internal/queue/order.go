package queue

// ranked is something that can stand in an [order].
type ranked[T any] interface {
	comparable
	// before is the order. It must not change while the thing stands in it, but
	// for the moment before [order.fix].
	before(o T) bool
	// place is where the thing keeps its place in the order, counted from 1; 0
	// is none.
	place() *int
}

// order is a heap whose elements know their places.
type order[T ranked[T]] []T

// fix puts x where it belongs, in the order or not.
func (o *order[T]) fix(x T) {
	p := x.place()
	if *p == 0 {
		*o = append(*o, x)
		*p = len(*o)
	}
	i := *p - 1
	if (*o)[i] = x; !o.up(i) {
		o.down(i)
	}
}

// remove takes x out, if it is in the order.
func (o *order[T]) remove(x T) {
	p := x.place()
	if *p == 0 {
		return
	}
	i, last := *p-1, len(*o)-1
	h := *o
	if i != last {
		h[i] = h[last]
		*h[i].place() = i + 1
	}
	var none T
	h[last], *o, *p = none, h[:last], 0
	if i != last && !o.up(i) {
		o.down(i)
	}
}

// walk shows elements to visit, each after one that comes before it, and leaves
// out what comes after an element for which visit says no: a search for the
// first that passes looks at those that come before it, and at their next.
func (o order[T]) walk(visit func(T) bool) { o.walkFrom(0, visit) }

func (o order[T]) walkFrom(i int, visit func(T) bool) {
	if i < len(o) && visit(o[i]) {
		o.walkFrom(2*i+1, visit)
		o.walkFrom(2*i+2, visit)
	}
}

func (o order[T]) up(i int) (moved bool) {
	for x := o[i]; i > 0; moved = true {
		parent := (i - 1) / 2
		if !x.before(o[parent]) {
			break
		}
		o.swap(i, parent)
		i = parent
	}
	return moved
}

func (o order[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(o) {
			return
		}
		if right := child + 1; right < len(o) && o[right].before(o[child]) {
			child = right
		}
		if !o[child].before(o[i]) {
			return
		}
		o.swap(i, child)
		i = child
	}
}

func (o order[T]) swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	*o[i].place(), *o[j].place() = i+1, j+1
}
