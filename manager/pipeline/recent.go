package pipeline

import (
	"container/list"
	"sync"
)

// recent keeps the values that were used last, up to a number of bytes. It is safe for concurrent use. The caller sets
// most before the first use.
type recent[K comparable, V any] struct {
	most int // bytes of all values

	mu      sync.Mutex
	size    int
	entries map[K]*list.Element
	order   list.List // of *recentEntry, the one that was used last in front
}

type recentEntry[K comparable, V any] struct {
	key   K
	value V
	size  int
}

// get returns a value.
func (r *recent[K, V]) get(key K) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	if e == nil {
		return value, false
	}
	r.order.MoveToFront(e)
	return e.Value.(*recentEntry[K, V]).value, true //nolint:forcetypeassert // the list has nothing else
}

// take removes a value and returns it.
func (r *recent[K, V]) take(key K) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	if e == nil {
		return value, false
	}
	return r.remove(e).value, true
}

// put adds or replaces a value of a size in bytes. A value that is too large for all of them is not kept.
func (r *recent[K, V]) put(key K, value V, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[key]; e != nil {
		r.remove(e)
	}
	if size > r.most {
		return
	}
	if r.entries == nil {
		r.entries = map[K]*list.Element{}
	}
	r.entries[key] = r.order.PushFront(&recentEntry[K, V]{key, value, size})
	for r.size += size; r.size > r.most; {
		r.remove(r.order.Back())
	}
}

// remove removes an entry. The caller holds mu.
func (r *recent[K, V]) remove(e *list.Element) *recentEntry[K, V] {
	entry := r.order.Remove(e).(*recentEntry[K, V]) //nolint:forcetypeassert // the list has nothing else
	delete(r.entries, entry.key)
	r.size -= entry.size
	return entry
}
