package agent

import (
	"context"
	"sync"
)

// readers are the readers of foreign agents' output. They may outlive the call that started them, until
// the step ends, the machine is gone or the stage is destroyed.
type readers struct {
	work sync.WaitGroup

	mu   sync.Mutex
	ends map[*context.CancelFunc]bool // guarded by mu
}

// begin runs read. It returns a function that ends read's context.
func (r *readers) begin(c *Client, read func(context.Context)) context.CancelFunc {
	base, cancel := context.WithCancel(context.Background())
	ctx, left := c.whileThere(base)
	r.mu.Lock()
	if r.ends == nil {
		r.ends = map[*context.CancelFunc]bool{}
	}
	r.ends[&cancel] = true
	r.mu.Unlock()
	r.work.Go(func() {
		defer func() {
			cancel()
			left()
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.ends, &cancel)
		}()
		read(ctx)
	})
	return cancel
}

// end ends all readers and waits for them.
func (r *readers) end() {
	r.mu.Lock()
	for cancel := range r.ends {
		(*cancel)()
	}
	r.mu.Unlock()
	r.work.Wait()
}
