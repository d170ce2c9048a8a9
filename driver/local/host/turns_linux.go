package host

import (
	"context"
	"sync"
)

// turns lets one goroutine at a time work on a path. The zero value is ready.
type turns struct {
	mu    sync.Mutex
	paths map[string]*turn // guarded by mu
}

type turn struct {
	taken chan struct{} // holds a value while a goroutine has the turn
	users int           // goroutines that have the turn or wait for it; guarded by mu of turns
}

// enter waits for the turn of the caller, which must call done.
func (t *turns) enter(ctx context.Context, path string) (done func(), err error) {
	one := t.join(path)
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.leave(path)
		}, nil
	case <-ctx.Done():
		t.leave(path)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(path string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paths == nil {
		t.paths = map[string]*turn{}
	}
	one := t.paths[path]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.paths[path] = one
	}
	one.users++
	return one
}

func (t *turns) leave(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paths[path].users--; t.paths[path].users == 0 {
		delete(t.paths, path)
	}
}
