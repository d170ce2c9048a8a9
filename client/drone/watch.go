package drone

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// goLoop starts a goroutine that Unregister ends and waits for.
func (c *Client) goLoop(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session; s != nil {
		s.loops.Go(func() { f(s.ctx) })
	}
}

// watchGap is the time after which the watch asks for the status of the build: the server does
// not report a cancellation that came before the watch.
const watchGap = time.Second

// watchEvery is the time from the begin of a watch to the begin of the next one. A server holds each for 30 s, so
// one is open at each moment, and no cancellation comes between two. To ask for the status of the build instead
// costs the server a call of its Git provider.
const watchEvery = 20 * time.Second

// defaultTimeout is the time-out of a stage whose repository has none.
const defaultTimeout = time.Hour

// watch waits until the build is cancelled, or the time of the stage is over.
func (r *run) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	if r.endWatch != nil || r.phase == phaseOver {
		r.mu.Unlock()
		return
	}
	r.endWatch = cancel
	build := r.details.Build.number("id")
	limit := time.Duration(r.details.Repo.number("timeout")) * r.c.minute
	if limit <= 0 {
		limit = defaultTimeout
	}
	left := limit - time.Since(time.Unix(r.progress.Started, 0))
	r.mu.Unlock()

	deadline := time.AfterFunc(left, func() {
		r.mu.Lock()
		r.problem = fmt.Sprintf("the stage exceeded the time-out of the repository, %s", limit)
		r.timedOut = !r.killed
		r.mu.Unlock()
		r.cancel()
	})
	defer deadline.Stop()
	gap := make(chan struct{})
	go func() {
		defer close(gap)
		select {
		case <-time.After(watchGap):
			r.look(ctx)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-gap }()
	var calls sync.WaitGroup
	defer func() { cancel(); calls.Wait() }()
	for ctx.Err() == nil {
		calls.Go(func() {
			if r.watchOnce(ctx, build) {
				cancel()
			}
		})
		select {
		case <-time.After(r.c.watchEvery):
		case <-ctx.Done():
		}
	}
}

// watchOnce holds one call until the server ends it. If the call ends before the next one has begun, watchOnce
// asks for the status of the build and calls again. It reports whether the build is cancelled.
func (r *run) watchOnce(ctx context.Context, build int64) bool {
	p, next := newPause(), time.Now().Add(r.c.watchEvery)
	for ctx.Err() == nil {
		status, err := r.c.attempt(ctx, request{
			method: http.MethodPost, path: "/rpc/v2/build/" + strconv.FormatInt(build, 10) + "/watch", timeout: pollTimeout,
		}, nil)
		if err == nil && status == http.StatusOK {
			r.cancel()
			return true
		}
		if time.Now().After(next) {
			return false
		}
		p.wait(ctx, err)
		if r.look(ctx) {
			return true
		}
	}
	return false
}

// look asks for the status of the build. It reports whether the build is cancelled.
func (r *run) look(ctx context.Context) bool {
	d := &details{}
	_, err := r.c.attempt(ctx, request{method: http.MethodGet, path: stagePath(r.id)}, d)
	if err != nil || !d.cancelled() {
		return false
	}
	r.cancel()
	return true
}
