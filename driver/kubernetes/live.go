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

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/internal/recorded"
)

// pod is a transaction's pod as long as this driver has to do with it: it is
// watched, and there is a connection to its hub.
type pod struct {
	d               *Driver
	namespace, name string
	*watcher
	hub *http.Client

	link *link
	// alive ends with the driver's interest in the pod.
	alive context.Context //nolint:containedctx // a lifetime, not the context of a call
	stop  context.CancelCauseFunc
	work  sync.WaitGroup

	names   []podagent.Host // of the hub; guarded by d.mu
	fixed   bool            // that the pod's file of hosts is not the hub's to change; guarded by d.mu
	learned bool            // that names are; guarded by d.mu

	secret sync.Mutex // held while the credentials for registries are changed
}

func (p *pod) key() string { return p.namespace + "/" + p.name }

// follow gives the pod, which is watched from now on.
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
		case <-p.lost: // nothing answers there any more
		case <-p.alive.Done():
		}
		p.link.close()
	})
	return p, nil
}

// unanswered is for what a step's call to the cluster meets and nobody is told.
func (p *pod) unanswered(err error) {
	p.d.cfg.Log.Warn().Err(err).Str("pod", p.key()).Msg("the cluster does not answer as it should, trying again")
}

func (p *pod) unreachable(err error) {
	reason := Unreachable
	if isForbidden(err) {
		reason = Refused
	}
	p.abandon(&Error{Reason: reason, Pod: p.key(), Message: err.Error(), err: err})
}

// forget ends the driver's interest in a pod, and returns when nothing is done
// for it any more.
func (d *Driver) forget(ctx context.Context, p *pod) error {
	p.stop(recorded.ErrCleanedUp)
	done := newSignal()
	go func() { // ends with what is stopped
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

// goes runs f in a goroutine of the pod's. It reports false, without running f,
// when the driver has no interest in the pod any more.
func (p *pod) goes(f func()) bool {
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

// call asks the hub, once. It returns at once when the pod is lost.
func (p *pod) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := p.whileThere(ctx)
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
		var said agent.Error
		if json.Unmarshal(text, &said) != nil || said.Message == "" {
			said.Message = fmt.Sprintf("status %d", res.StatusCode)
		}
		return &hubAnswer{pod: p.key(), text: said.Message}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// hubAnswer is an answer that says no.
type hubAnswer struct{ pod, text string }

func (e *hubAnswer) Error() string { return "pod " + e.pod + ": " + e.text }

// drop ends the driver's interest in a pod that is gone.
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

// whileThere bounds ctx by the pod's life.
func (p *pod) whileThere(ctx context.Context) (context.Context, context.CancelFunc) {
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

// isOver reports whether err says that nothing can be done in the pod any more.
func (p *pod) isOver(err error) bool {
	var e *Error
	return errors.As(err, &e) || errors.Is(err, recorded.ErrCleanedUp) || p.err() != nil
}
