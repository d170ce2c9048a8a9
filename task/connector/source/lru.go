package source

import (
	"container/list"
	"sync"
)

// lru remembers values by a key, up to a number of them. It is safe for concurrent use.
type lru[V any] struct {
	mu    sync.Mutex
	most  int
	items map[string]*list.Element
	order *list.List // of entry[V], the last used first
}

type entry[V any] struct {
	key   string
	value V
}

func newLRU[V any](most int) *lru[V] {
	return &lru[V]{most: most, items: map[string]*list.Element{}, order: list.New()}
}

func (l *lru[V]) get(key string) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.items[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*entry[V]).value, true //nolint:forcetypeassert // put adds no others
}

func (l *lru[V]) put(key string, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.items[key]; ok {
		e.Value.(*entry[V]).value = value //nolint:forcetypeassert // see get
		l.order.MoveToFront(e)
		return
	}
	l.items[key] = l.order.PushFront(&entry[V]{key, value})
	if l.order.Len() > l.most {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.items, last.Value.(*entry[V]).key) //nolint:forcetypeassert // see get
	}
}

func (l *lru[V]) remove(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.items[key]; ok {
		l.order.Remove(e)
		delete(l.items, key)
	}
}
