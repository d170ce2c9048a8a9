package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// ErrGone is why calls fail once the machine is known to be dead.
var ErrGone = errors.New("the machine of the agent is gone")

// Client talks to one agent. It is safe for concurrent use. Use [NewClient].
type Client struct {
	base      string
	http      *http.Client
	gone      <-chan struct{}
	stopLimit time.Duration

	health atomic.Pointer[Health] // nil until the agent has answered
}

// Option sets up a [Client].
type Option func(*Client)

// WithGone makes all calls fail with [ErrGone], at once, when gone is closed.
func WithGone(gone <-chan struct{}) Option { return func(c *Client) { c.gone = gone } }

// WithStopTimeout bounds how long a step whose context has ended may take to stop, its
// grace included. The default is a minute. It must be positive.
func WithStopTimeout(limit time.Duration) Option {
	return func(c *Client) { c.stopLimit = limit }
}

// NewClient makes a client for the agent at base, such as "https://10.0.0.7:9079". rt is
// the caller's to close; nil is [http.DefaultTransport].
func NewClient(base string, rt http.RoundTripper, opts ...Option) *Client {
	c := &Client{
		base: strings.TrimRight(base, "/"), stopLimit: time.Minute,
		// A redirect is no agent's.
		http: &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// Transport makes connections to one agent: HTTP/2 by mutual TLS, never by a proxy,
// and one that is dead is noticed within 20 seconds.
func Transport(cfg *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: cfg, ForceAttemptHTTP2: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 5 * time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// Health asks the agent once whether it is there.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	h := &Health{}
	// No look-up of names: some agents fail without the internet.
	if err := c.call(ctx, http.MethodGet, "/healthz?perform_dns_lookup=false", nil, h); err != nil {
		return nil, fmt.Errorf("agent's health: %w", err)
	}
	c.health.Store(h)
	return h, nil
}

// ours reports whether the agent is this project's.
func (c *Client) ours(ctx context.Context) (bool, error) {
	h := c.health.Load()
	if h == nil {
		var err error
		err = c.insist(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, quick)
			defer cancel()
			h, err = c.Health(ctx)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return h.Agent == Ours, nil
}

// Setup begins a stage. When ctx ends first, the setup goes on until a Destroy. Another
// agent than ours clones nothing: to ask it to is an error.
func (c *Client) Setup(ctx context.Context, req *SetupRequest) (*SetupResponse, error) {
	switch ours, err := c.ours(ctx); {
	case err != nil:
		return nil, fmt.Errorf("agent's setup: %w", err)
	case !ours && req.Clone != nil:
		return nil, errors.New("agent's setup: this agent cannot clone a repository: let a step do that")
	case !ours:
		req = setupForOthers(req)
	}
	resp := &SetupResponse{}
	if err := c.post(ctx, "/setup", req, resp); err != nil {
		return nil, fmt.Errorf("agent's setup: %w", err)
	}
	return resp, nil
}

// Destroy ends a stage: its steps are stopped and all that they left is removed. It
// may be called again, and without a stage.
func (c *Client) Destroy(ctx context.Context, req *DestroyRequest) error {
	if err := c.post(ctx, "/destroy", req, &struct{}{}); err != nil {
		return fmt.Errorf("agent's destroy: %w", err)
	}
	return nil
}

// Suspend tells the agent that its machine is about to sleep.
func (c *Client) Suspend(ctx context.Context) error {
	if err := c.post(ctx, "/suspend", struct{}{}, &struct{}{}); err != nil {
		return fmt.Errorf("agent's suspend: %w", err)
	}
	return nil
}

// quick bounds one attempt at a call that is answered at once.
const quick = 30 * time.Second

// post calls until there is an answer.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.insist(ctx, func(ctx context.Context) error { return c.call(ctx, http.MethodPost, path, body, out) })
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 256 << 20

// call makes one attempt.
func (c *Client) call(ctx context.Context, method, path string, body []byte, out any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &Error{Status: resp.StatusCode, Message: fmt.Sprintf("the agent's answer to %s is not understood: %v", path, err)}
	}
	return nil
}

// do makes one attempt and gives the answer's body to the caller if it is a good
// one.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Message: err.Error()} // not worth another attempt
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 2<<20))
	e := &Error{}
	if json.Unmarshal(b, e) != nil {
		e = &Error{Message: strings.TrimSpace(string(b[:min(len(b), 512)]))}
	}
	e.Status = resp.StatusCode
	return nil, e
}

// insist calls f until it succeeds, or fails with an answer of the agent's, or ctx
// ends, or the machine is gone.
func (c *Client) insist(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := c.whileThere(ctx)
	defer stop()
	for wait := newBackoff(); ; {
		err := f(ctx)
		if err == nil || isFinal(err) {
			return err
		}
		if waitErr := wait.sleep(ctx); waitErr != nil {
			if cause := context.Cause(ctx); errors.Is(cause, ErrGone) {
				return ErrGone
			}
			return fmt.Errorf("%w (%w)", waitErr, err)
		}
	}
}

// whileThere is ctx until the machine is gone.
func (c *Client) whileThere(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.gone == nil {
		return ctx, func() { cancel(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.gone:
			cancel(ErrGone)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// isFinal reports whether err is an answer that another attempt would not change.
func isFinal(err error) bool {
	answered := (*Error)(nil)
	if !errors.As(err, &answered) {
		return false
	}
	switch answered.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false // somebody on the way
	}
	return true
}

// backoff is the time between attempts.
type backoff struct{ next time.Duration }

const (
	firstWait   = 20 * time.Millisecond
	longestWait = 2 * time.Second
)

func newBackoff() *backoff { return &backoff{next: firstWait} }

func (b *backoff) reset() { b.next = firstWait }

func (b *backoff) sleep(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d := b.next/2 + rand.N(b.next) //nolint:gosec // not a secret
	b.next = min(2*b.next, longestWait)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
