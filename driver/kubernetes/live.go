package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/internal/recorded"
)

// pod is the pod of a transaction while this driver uses it. The driver watches it and has
// a connection to its hub.
type pod struct {
	d               *Driver
	namespace, name string
	*watcher
	hub *http.Client

	link *link
	// alive ends when the driver stops using the pod.
	alive context.Context //nolint:containedctx // a lifetime, not the context of a call
	stop  context.CancelCauseFunc
	work  sync.WaitGroup

	names   []podagent.Host // of the hub; guarded by d.mu
	fixed   bool            // the hub cannot change the hosts file; guarded by d.mu
	learned bool            // names are loaded; guarded by d.mu

	secret sync.Mutex // held during a change of the registry credentials
}

func (p *pod) key() string { return p.namespace + "/" + p.name }

// follow returns the pod, and watches it from now on.
func (d *Driver) follow(namespace, name string) (*pod, error) {
	key := namespace + "/" + name
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	if p := d.pods[key]; p != nil {
		return p, nil
	}
	p := &pod{d: d, namespace: namespace, name: name, watcher: newWatcher(key, d.cfg.ReconnectTimeout)}
	p.alive, p.stop = context.WithCancelCause(d.alive)
	p.link = &link{alive: p.alive, limit: d.cfg.ReconnectTimeout, dead: p.unreachable, dial: func(ctx context.Context) (net.Conn, error) {
		return d.exec(ctx, p.alive, namespace, name, hubContainer, podagent.Program, "dial")
	}}
	p.hub = &http.Client{Transport: p.link}
	d.pods[key] = p
	run := func(f func()) {
		p.work.Add(1)
		d.work.Go(func() {
			defer p.work.Done()
			f()
		})
	}
	run(func() { p.run(p.alive, d, namespace, name) })
	run(func() {
		select {
		case <-p.lost: // no agent answers after this
		case <-p.alive.Done():
		}
		p.link.close()
	})
	return p, nil
}

// unanswered returns a function that logs temporary errors of a call of a step.
func (p *pod) unanswered(ctx context.Context) func(error) {
	log := p.d.log(ctx)
	return func(err error) {
		log.Warn().Err(err).Str("pod", p.key()).Msg("a request to the API server failed, trying again")
	}
}

// log returns the logger of a call: that of ctx, which masks the secrets of its task (rule L1),
// or that of the configuration if ctx has none.
func (d *Driver) log(ctx context.Context) *zerolog.Logger {
	if log := zerolog.Ctx(ctx); log.GetLevel() != zerolog.Disabled {
		return log
	}
	return &d.cfg.Log
}

func (p *pod) unreachable(err error) {
	reason := reasonUnreachable
	if isForbidden(err) {
		reason = reasonRefused
	}
	p.abandon(&Error{Reason: reason, Pod: p.key(), Message: err.Error(), err: err})
}

// forget stops the use of a pod, and waits until its goroutines have ended.
func (d *Driver) forget(ctx context.Context, p *pod) error {
	p.stop(recorded.ErrCleanedUp)
	done := newSignal()
	go func() { // ends with the stopped goroutines
		defer close(done)
		p.work.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pods[p.key()] == p {
		delete(d.pods, p.key())
	}
	return nil
}

// goTracked runs f in a goroutine that forget waits for. If the pod is not in use any more,
// it returns false and does not run f.
func (p *pod) goTracked(f func()) bool {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.d.closed || p.alive.Err() != nil {
		return false
	}
	p.work.Add(1)
	p.d.work.Go(func() {
		defer p.work.Done()
		f()
	})
	return true
}

// call sends one request to the hub. It returns at once when the pod is lost.
func (p *pod) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := p.untilLost(ctx)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://hub"+path, body)
	if err != nil {
		return err
	}
	res, err := p.hub.Do(req)
	if err != nil {
		if end := p.err(); end != nil {
			return end
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return err
	}
	if res.StatusCode > 299 {
		var answer agent.Error
		if json.Unmarshal(text, &answer) != nil || answer.Message == "" {
			answer.Message = fmt.Sprintf("status %d", res.StatusCode)
		}
		return &hubAnswer{pod: p.key(), text: answer.Message}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// hubAnswer is an error that the hub answered.
type hubAnswer struct{ pod, text string }

func (e *hubAnswer) Error() string { return "pod " + e.pod + ": " + e.text }

// drop stops the use of a pod that does not exist any more.
func (d *Driver) drop(p *pod) {
	select {
	case <-p.gone:
	default:
		return
	}
	p.stop(p.err())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pods[p.key()] == p {
		delete(d.pods, p.key())
	}
}

// untilLost returns a ctx that also ends when the pod is lost.
func (p *pod) untilLost(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	watching := make(chan struct{})
	go func() {
		select {
		case <-p.lost:
			cancel(p.err())
		case <-p.alive.Done():
			cancel(context.Cause(p.alive))
		case <-watching:
		}
	}()
	var once sync.Once
	return ctx, func() {
		once.Do(func() { close(watching) })
		cancel(nil)
	}
}

// isOver reports whether err means that the pod cannot be used any more.
func (p *pod) isOver(err error) bool {
	var e *Error
	return errors.As(err, &e) || errors.Is(err, recorded.ErrCleanedUp) || p.err() != nil
}
