package queue

import (
	"iter"
	"slices"
	"sort"
)

// chunkSize is the most elements of a chunk of a sorted list.
const chunkSize = 128

// sorted is an ordered list that is cut into chunks: a B+ tree of two levels. It finds,
// inserts and removes an element in logarithmic time and moves less than a chunk for it.
// The zero value is an empty list.
//
// A B-tree of a library splits its full nodes in half, so works that arrive in order leave
// them half empty. With one, a waiting stage took more than 500 bytes: see docs/benchmarks.md.
type sorted[T ordered[T]] struct {
	chunks [][]T // none is empty
	size   int
}

// ordered is an element of a sorted list. No two elements of a list are equal.
type ordered[T any] interface{ before(other T) bool }

// find returns the chunk and the index in it of the first element that is not before x.
func (s *sorted[T]) find(x T) (c, i int) {
	c = sort.Search(len(s.chunks), func(c int) bool {
		chunk := s.chunks[c]
		return !chunk[len(chunk)-1].before(x)
	})
	if c < len(s.chunks) {
		chunk := s.chunks[c]
		i = sort.Search(len(chunk), func(i int) bool { return !chunk[i].before(x) })
	}
	return c, i
}

// insert adds an element that is not in the list. Elements that arrive in their order, as
// works do, fill whole chunks.
func (s *sorted[T]) insert(x T) {
	c, i := s.find(x)
	s.size++
	if c == len(s.chunks) { // after all others
		if c == 0 || len(s.chunks[c-1]) == chunkSize {
			s.chunks = append(s.chunks, []T{x})
		} else {
			s.chunks[c-1] = append(s.chunks[c-1], x)
		}
		return
	}
	if chunk, half := s.chunks[c], chunkSize/2; len(chunk) == chunkSize {
		s.chunks = slices.Insert(s.chunks, c+1, slices.Clone(chunk[half:]))
		s.chunks[c] = slices.Delete(chunk, half, chunkSize)
		if i > half {
			c, i = c+1, i-half
		}
	}
	s.chunks[c] = slices.Insert(s.chunks[c], i, x)
}

// remove takes an element out, if it is in the list.
func (s *sorted[T]) remove(x T) {
	c, i := s.find(x)
	if c == len(s.chunks) || x.before(s.chunks[c][i]) {
		return
	}
	s.size--
	if chunk := s.chunks[c]; i == 0 { // most works leave from the front
		clear(chunk[:1])
		s.chunks[c] = chunk[1:]
	} else {
		s.chunks[c] = slices.Delete(chunk, i, i+1)
	}
	s.join(c)
	s.join(c - 1)
	if c = min(c, len(s.chunks)-1); len(s.chunks[c]) == 0 {
		s.chunks = slices.Delete(s.chunks, c, c+1)
	}
}

// join joins a chunk with the next one if both together fill half a chunk at most.
func (s *sorted[T]) join(c int) {
	if c >= 0 && c+1 < len(s.chunks) && len(s.chunks[c])+len(s.chunks[c+1]) <= chunkSize/2 {
		s.chunks[c] = append(s.chunks[c], s.chunks[c+1]...)
		s.chunks = slices.Delete(s.chunks, c+1, c+2)
	}
}

// first returns the first element, false when the list is empty.
func (s *sorted[T]) first() (x T, ok bool) {
	if s.size == 0 {
		return x, false
	}
	return s.chunks[0][0], true
}

// rank returns the number of elements before x.
func (s *sorted[T]) rank(x T) int {
	c, i := s.find(x)
	for _, chunk := range s.chunks[:c] {
		i += len(chunk)
	}
	return i
}

// all yields the elements in their order. The list must not change meanwhile.
func (s *sorted[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, chunk := range s.chunks {
			for _, x := range chunk {
				if !yield(x) {
					return
				}
			}
		}
	}
}
