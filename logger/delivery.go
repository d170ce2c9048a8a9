package logger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// deliveryTimeout limits one attempt, in addition to one second for each MiB.
	deliveryTimeout = 20 * time.Second
	// maxDeliveryRefusals is the number of consecutive times that the log service may refuse a
	// log, and refusalPause the time between them. A service whose manager is away cannot check
	// tokens and refuses them.
	maxDeliveryRefusals = 10
	refusalPause        = time.Minute
)

var errTooOld = errors.New("the log service was away for too long")

// deliveryQueue is the queue of one log service. Its logs are delivered one after the
// other, so that many logs do not load a service that returns.
type deliveryQueue struct {
	logs  []*keptLog
	woken chan struct{} // capacity 1
}

func (q *deliveryQueue) signal() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// attempt is an attempt to deliver a log.
type attempt struct {
	ctx    context.Context //nolint:containedctx // of this attempt alone
	cancel context.CancelFunc
	ended  chan struct{}
}

// enqueue adds a log to the queue of its log service. There is no attempt before due.
func (d *Deliverer) enqueue(k *keptLog, due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.kept[k]; !ok {
		return
	}
	k.waiting, k.due, k.busy = true, due, false
	d.byID[k.id()] = k
	url := k.target.URL
	q := d.queues[url]
	if q == nil {
		if d.closing {
			return // the next process continues
		}
		q = &deliveryQueue{woken: make(chan struct{}, 1)}
		d.queues[url] = q
		d.start(url, q)
	}
	q.logs = append(q.logs, k)
	q.signal()
}

// dequeue takes a log out of its queue. The caller holds mu.
func (d *Deliverer) dequeue(k *keptLog) {
	if !k.waiting {
		return
	}
	if d.byID[k.id()] == k {
		delete(d.byID, k.id())
	}
	k.waiting = false
	if q := d.queues[k.target.URL]; q != nil && !k.busy {
		q.logs = slices.DeleteFunc(q.logs, func(o *keptLog) bool { return o == k })
	}
}

// work delivers the logs of a queue until it is empty or ctx ends.
func (d *Deliverer) work(ctx context.Context, url string, q *deliveryQueue) {
	pauses := newDeliveryPauses()
	for {
		k, wait := d.next(ctx, url, q)
		switch {
		case k != nil && d.try(k):
			pauses.Reset()
		case k != nil:
			sleep(ctx, pauses.NextBackOff(), nil)
		case wait > 0:
			sleep(ctx, wait, q.woken)
		default:
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// newDeliveryPauses returns pauses that grow from 1 s to 30 s.
func newDeliveryPauses() backoff.BackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: time.Second, MaxInterval: 30 * time.Second / 4 * 3, Multiplier: 2, RandomizationFactor: 1.0 / 3,
	}
}

func sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-woken:
	case <-ctx.Done():
	}
}

// next takes the first log that is due. If there is none, it returns the time until one
// is, and 0 at the end of the queue.
func (d *Deliverer) next(ctx context.Context, url string, q *deliveryQueue) (*keptLog, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	var wait time.Duration
	for i, k := range q.logs {
		left := k.due.Sub(now)
		if left <= 0 {
			q.logs = slices.Delete(q.logs, i, i+1)
			k.busy, k.attempt = true, &attempt{ended: make(chan struct{})}
			k.attempt.ctx, k.attempt.cancel = context.WithCancel(ctx)
			return k, 0
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	if wait == 0 || d.closing {
		delete(d.queues, url)
		return nil, 0
	}
	return nil, wait
}

// try makes the attempt that next began.
func (d *Deliverer) try(k *keptLog) bool {
	a := k.attempt
	defer close(a.ended)
	defer a.cancel()
	return d.deliver(a.ctx, k)
}

// deliver makes one attempt. It reports false if the log service is away.
func (d *Deliverer) deliver(ctx context.Context, k *keptLog) bool {
	if k.target.Ended.IsZero() {
		k.target.Ended = time.Now() // no process continues the step
	}
	if time.Since(k.target.Ended) > d.cfg.MaxAge {
		d.drop(k, errTooOld)
		return true
	}
	cfg := k.config()
	if k.failures > 0 && d.cfg.Token != nil {
		if token := d.cfg.Token(cfg.URL); token != "" {
			cfg.Token = token
		}
	}
	cfg.CloseTimeout = deliveryTimeout
	if d.probe(ctx, &cfg) != nil {
		d.enqueue(k, time.Time{})
		return false
	}
	lines, err := k.load(&cfg)
	if err != nil {
		d.drop(k, fmt.Errorf("reading it: %w", err))
		return true
	}
	s := startStream(ctx, cfg, lines, k.progress())
	e := s.end(ctx)
	if e.arrived {
		lines.close()
		d.log.Info().Str("account", cfg.Account).Str("log", cfg.Key).Time("ended", k.target.Ended).Msg("a log was delivered late")
		return true
	}
	lines.leave()
	k.setProgress(&s.sender)
	if e.retry || ctx.Err() != nil {
		k.failures = 0
		d.enqueue(k, time.Time{})
		return false
	}
	if k.failures++; k.failures >= maxDeliveryRefusals {
		d.drop(k, e.err)
	} else {
		d.enqueue(k, time.Now().Add(refusalPause))
	}
	return true
}

// probe returns an error if the log service is away. An attempt would then upload the archive
// without the live stream if the service returned in between.
func (d *Deliverer) probe(ctx context.Context, cfg *StreamConfig) error {
	api := newService(cfg)
	defer api.close()
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	return api.probe(ctx)
}
