package queue

import (
	"iter"
	"slices"
	"sort"
)

// chunkSize is the most elements of a chunk of a sorted list.
const chunkSize = 128

// sorted is an ordered list that is cut into chunks: a B+ tree of two levels. It
// finds, inserts and removes an element in logarithmic time and moves less than a
// chunk for it. Elements that arrive in their order, as works do, fill whole chunks.
// The zero value is an empty list.
type sorted[T ordered[T]] struct {
	chunks []chunk[T] // none is empty
}

// chunk has its last element a second time, so that a search among chunks does not
// read their elements.
type chunk[T any] struct {
	last     T
	elements []T
}

// ordered is an element of a sorted list. No two elements of a list are equal.
type ordered[T any] interface {
	before(other T) bool
}

// find returns the chunk and the index in it of the first element that is not before
// x.
func (s *sorted[T]) find(x T) (c, i int) {
	c = sort.Search(len(s.chunks), func(c int) bool { return !s.chunks[c].last.before(x) })
	if c < len(s.chunks) {
		all := s.chunks[c].elements
		i = sort.Search(len(all), func(i int) bool { return !all[i].before(x) })
	}
	return c, i
}

// set replaces the elements of a chunk.
func (s *sorted[T]) set(c int, elements []T) {
	s.chunks[c] = chunk[T]{elements[len(elements)-1], elements}
}

// insert adds an element that is not in the list.
func (s *sorted[T]) insert(x T) {
	c, i := s.find(x)
	if c == len(s.chunks) { // after all others
		if c == 0 || len(s.chunks[c-1].elements) >= chunkSize {
			s.chunks = append(s.chunks, chunk[T]{x, []T{x}})
		} else {
			s.set(c-1, append(s.chunks[c-1].elements, x))
		}
		return
	}
	all := s.chunks[c].elements
	if half := chunkSize / 2; len(all) >= chunkSize {
		upper := slices.Clone(all[half:])
		clear(all[half:])
		s.set(c, all[:half])
		s.chunks = slices.Insert(s.chunks, c+1, chunk[T]{upper[len(upper)-1], upper})
		if i > half {
			c, i = c+1, i-half
		}
	}
	s.set(c, slices.Insert(s.chunks[c].elements, i, x))
}

// remove takes an element out, if it is in the list.
func (s *sorted[T]) remove(x T) {
	c, i := s.find(x)
	if c == len(s.chunks) || x.before(s.chunks[c].elements[i]) {
		return
	}
	all := s.chunks[c].elements
	if i == 0 { // most works leave from the front
		clear(all[:1])
		all = all[1:]
	} else {
		all = slices.Delete(all, i, i+1)
	}
	if len(all) == 0 {
		s.chunks = slices.Delete(s.chunks, c, c+1)
	} else {
		s.set(c, all)
		s.merge(c)
	}
	s.merge(c - 1)
}

// merge joins a chunk with the next one if both together fill half a chunk at most.
func (s *sorted[T]) merge(c int) {
	if c < 0 || c+1 >= len(s.chunks) {
		return
	}
	all, next := s.chunks[c].elements, s.chunks[c+1].elements
	if len(all)+len(next) <= chunkSize/2 {
		s.set(c, append(all, next...))
		s.chunks = slices.Delete(s.chunks, c+1, c+2)
	}
}

// first returns the first element, false when the list is empty.
func (s *sorted[T]) first() (x T, ok bool) {
	if len(s.chunks) == 0 {
		return x, false
	}
	return s.chunks[0].elements[0], true
}

// rank returns the number of elements before x.
func (s *sorted[T]) rank(x T) int {
	c, i := s.find(x)
	for _, chunk := range s.chunks[:c] {
		i += len(chunk.elements)
	}
	return i
}

// size returns the number of elements.
func (s *sorted[T]) size() (n int) {
	for _, chunk := range s.chunks {
		n += len(chunk.elements)
	}
	return n
}

// all yields the elements in their order. The list must not change meanwhile.
func (s *sorted[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, chunk := range s.chunks {
			for _, x := range chunk.elements {
				if !yield(x) {
					return
				}
			}
		}
	}
}
