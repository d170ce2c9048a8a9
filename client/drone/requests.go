package drone

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// offerLifetime is how long an offered stage waits for a slot. Then the client asks again: the
// stage may have gone to another runner.
const offerLifetime = 5 * time.Second

// filter selects the stages that the server hands out.
type filter struct {
	Kind    string            `json:"kind"`
	Type    string            `json:"type"`
	OS      string            `json:"os"`
	Arch    string            `json:"arch"`
	Variant string            `json:"variant"`
	Kernel  string            `json:"kernel"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// requests asks for stages of a type until ctx ends. Only one call is open at a time, and only
// while a slot is free: a server gives a stage to one waiting runner, so a runner without a
// free slot must not wait.
func (c *Client) requests(ctx context.Context, kind string) {
	p, productive := newPause(), false
	for c.awaitRoom(ctx, productive) {
		begun := time.Now()
		r, err := c.request(ctx, kind)
		if !errors.Is(err, errNoRoom) || time.Since(begun) > answerTime { // else the server had no time to answer
			productive = r != nil
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoRoom):
		case err != nil:
			c.cfg.Log.Warn().Err(err).Msg("cannot ask the Drone server for a stage")
			if isRefused(err) {
				c.refuse(err)
			}
			if !p.wait(ctx, err) {
				return
			}
		case r != nil:
			p = newPause()
			if !c.awaitAccepted(ctx, r) && !c.isFull() {
				leave(ctx)
			}
		case time.Since(begun) < time.Second: // the server does not hold the call
			p.wait(ctx, nil)
		default:
			p = newPause()
		}
	}
}

// refuse makes the next poll fail, so that the poller registers again.
func (c *Client) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
	c.notify()
}

// errNoRoom ends a call because no slot is free any more, or because the delegate drains.
var errNoRoom = errors.New("no slot is free")

// full reports whether no stage may be asked for, and returns channels that are closed when
// that may have changed.
func (c *Client) full() (full bool, slots, changed <-chan struct{}) {
	slots = c.cfg.Slots.Changed()
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.cfg.Slots.Max()
	return c.draining || c.refused != nil || most > 0 && c.cfg.Slots.Used() >= most, slots, c.changed
}

// queueEvery is how often the client queues for a slot if its last call brought no stage.
const queueEvery = 2 * time.Second

// mayQueue reports whether the time of queueEvery has passed, and begins it again.
func (c *Client) mayQueue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.queued) < queueEvery {
		return false
	}
	c.queued = time.Now()
	return true
}

// answerTime is how long a server that has a stage takes to offer it, at most. It is less than a
// turn of [capacity.Slots].
const answerTime = 200 * time.Millisecond

// queueForSlot gets in line for a slot that another poller of the process could take first: the
// client learns of a stage only when it may ask for one.
func (c *Client) queueForSlot() {
	if slot, ok := c.cfg.Slots.Take(); ok {
		slot.Release()
	}
}

func (c *Client) isFull() bool {
	full, _, _ := c.full()
	return full
}

// awaitRoom waits until a slot is free. productive reports that the last call brought a stage.
// awaitRoom returns false when ctx has ended.
func (c *Client) awaitRoom(ctx context.Context, productive bool) bool {
	for first := true; ; first = false {
		full, slots, changed := c.full()
		if !full {
			return ctx.Err() == nil
		}
		if first && (productive || c.mayQueue()) {
			c.queueForSlot()
			continue
		}
		select {
		case <-slots:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// request holds one call for a stage. It returns nil if the server has none.
func (c *Client) request(ctx context.Context, kind string) (*run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			full, slots, changed := c.full()
			if full {
				cancel(errNoRoom)
				return
			}
			select {
			case <-slots:
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	defer func() { cancel(nil); <-watched }()
	var offer record
	status, err := c.attempt(ctx, request{
		method: http.MethodPost, path: "/rpc/v2/stage", timeout: pollTimeout,
		body: jsonBody(filter{
			Kind: "pipeline", Type: kind, OS: c.cfg.OS, Arch: c.cfg.Arch, Variant: c.cfg.Variant, Kernel: c.cfg.Kernel, Labels: c.cfg.Labels,
		}),
	}, &offer)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errNoRoom):
		return nil, errNoRoom
	case err != nil:
		return nil, err
	case status == http.StatusNoContent || offer.number("id") <= 0:
		return nil, nil
	}
	return c.offer(offer), nil
}

// offer adds a stage that the server offers. It returns nil if the stage is open already.
func (c *Client) offer(stage record) *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := stage.number("id")
	if c.stages[id] != nil {
		return nil
	}
	r := c.newRun(id)
	r.phase = phaseInit
	c.stages[id] = r
	c.notify()
	return r
}

// awaitAccepted waits until the poller has tried to accept a stage. After some time it drops the
// offer and returns false.
func (c *Client) awaitAccepted(ctx context.Context, r *run) bool {
	t := time.NewTimer(offerLifetime)
	defer t.Stop()
	select {
	case <-r.decided:
	case <-t.C:
		r.drop()
		return false
	case <-ctx.Done():
	}
	return true
}

// leave leaves the stages to other runners for a while: the poller refuses them although a slot
// is free, because the host is busy or a filter refuses them.
func leave(ctx context.Context) {
	t := time.NewTimer(2 * offerLifetime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
