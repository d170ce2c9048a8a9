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

	"github.com/delegate-io/dlite/task/stage"
)

// ErrGone is the error of calls when the machine is known to be dead.
var ErrGone error = goneError{}

type goneError struct{}

func (goneError) Error() string { return "the machine of the agent is gone" }

// FailureKind returns the kind of the failure for the answer to the manager.
func (goneError) FailureKind() string { return stage.FailureConnectivity }

// Client calls one agent. Create it with [NewClient], and set the fields before the first call.
// Its methods are safe for concurrent use.
type Client struct {
	// Gone makes all calls fail with [ErrGone] when it is closed. It may be nil.
	Gone <-chan struct{}
	// StopTimeout limits the time that a step may take to stop after its context ended, including
	// its grace. NewClient sets one minute. It must be positive.
	StopTimeout time.Duration

	base string
	http *http.Client

	health  atomic.Pointer[Health] // nil until the agent has answered
	readers readers
}

// NewClient returns a client of the agent at base, such as "https://10.0.0.7:9079". The caller
// closes rt; nil is [http.DefaultTransport].
func NewClient(base string, rt http.RoundTripper) *Client {
	return &Client{
		base: strings.TrimRight(base, "/"), StopTimeout: time.Minute,
		// An agent never redirects.
		http: &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// Transport returns a transport for one agent: HTTP/2 over mutual TLS, without a proxy. Pings
// detect a dead connection within 20 seconds.
func Transport(cfg *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: cfg.Clone(), ForceAttemptHTTP2: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 5 * time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// Health asks the agent for its health, once.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	h := &Health{}
	// Some agents fail a DNS lookup without internet access.
	if err := c.call(ctx, http.MethodGet, "/healthz?perform_dns_lookup=false", nil, h); err != nil {
		return nil, fmt.Errorf("agent's health: %w", err)
	}
	c.health.Store(h)
	return h, nil
}

// isOwn reports whether the agent is an agent of this package.
func (c *Client) isOwn(ctx context.Context) (bool, error) {
	h := c.health.Load()
	if h == nil {
		var err error
		err = c.retry(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			h, err = c.Health(ctx)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return h.Agent == agentName, nil
}

// Setup starts a stage. If ctx ends first, the setup continues until a Destroy. A foreign agent
// cannot clone a repository, which is an error.
func (c *Client) Setup(ctx context.Context, req *SetupRequest) (*SetupResponse, error) {
	switch own, err := c.isOwn(ctx); {
	case err != nil:
		return nil, fmt.Errorf("agent's setup: %w", err)
	case !own && req.Clone != nil:
		return nil, errors.New("agent's setup: this agent cannot clone a repository: use a step instead")
	case !own:
		req = foreignSetup(req)
	}
	resp := &SetupResponse{}
	if err := c.post(ctx, "/setup", req, resp); err != nil {
		return nil, fmt.Errorf("agent's setup: %w", err)
	}
	return resp, nil
}

// Destroy ends a stage: the agent stops its steps and removes its resources. The caller may repeat
// it, and call it without a stage.
func (c *Client) Destroy(ctx context.Context, req *DestroyRequest) error {
	if err := c.post(ctx, "/destroy", req, &struct{}{}); err != nil {
		return fmt.Errorf("agent's destroy: %w", err)
	}
	c.readers.end()
	return nil
}

// Suspend announces to the agent that its machine is about to sleep.
func (c *Client) Suspend(ctx context.Context) error {
	if err := c.post(ctx, "/suspend", struct{}{}, &struct{}{}); err != nil {
		return fmt.Errorf("agent's suspend: %w", err)
	}
	return nil
}

// callTimeout limits one attempt of a short call.
const callTimeout = 30 * time.Second

// post repeats the call until it is answered.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.retry(ctx, func(ctx context.Context) error { return c.call(ctx, http.MethodPost, path, body, out) })
}

// maxAnswer limits an answer, in bytes.
const maxAnswer = 256 << 20

// call makes one attempt and decodes the answer.
func (c *Client) call(ctx context.Context, method, path string, body []byte, out any) error {
	resp, err := c.send(ctx, method, path, body)
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
		return &Error{Status: resp.StatusCode, Message: fmt.Sprintf("cannot decode the agent's answer to %s: %v", path, err)}
	}
	return nil
}

// send makes one attempt. The caller closes the body of a successful answer.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Message: err.Error()} // a retry would not help
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

// retry calls f until it succeeds, the agent answers with an error, ctx ends or the machine is
// gone.
func (c *Client) retry(ctx context.Context, f func(context.Context) error) error {
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

// whileThere returns a context that also ends when the machine is gone.
func (c *Client) whileThere(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.Gone == nil {
		return ctx, func() { cancel(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.Gone:
			cancel(ErrGone)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// isFinal reports whether err is an answer that a retry would not change.
func isFinal(err error) bool {
	answered := (*Error)(nil)
	if !errors.As(err, &answered) {
		return false
	}
	switch answered.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false // from a proxy, not from the agent
	}
	return true
}

// backoff computes the pauses between attempts.
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
