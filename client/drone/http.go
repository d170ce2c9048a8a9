package drone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/client"
)

const (
	callTimeout = 30 * time.Second
	// pollTimeout limits a call that the server holds for 30 s.
	pollTimeout = 75 * time.Second
	// maxAnswer is the size limit of an answer, in bytes.
	maxAnswer = 32 << 20
	// maxMessage is the size of an excerpt of the server's message, in bytes.
	maxMessage = 500
	// serverErrors is how often a call is tried whose answer has the status 500: the server
	// also gives it to calls that can never succeed.
	serverErrors = 5
	// conflictMessage is in the answer to an update with an old version. For the end of a step a
	// server may give it the status 500.
	conflictMessage = "Optimistic Lock Error"
)

// request is a call to the server.
type request struct {
	method, path string
	query        url.Values
	body         func() (io.Reader, int64, error) // nil means none
	timeout      time.Duration                    // 0 means callTimeout
}

// jsonBody returns a body that encodes v.
func jsonBody(v any) func() (io.Reader, int64, error) {
	return func() (io.Reader, int64, error) {
		b, err := json.Marshal(v)
		return bytes.NewReader(b), int64(len(b)), err
	}
}

// attempt makes a call once and decodes the answer into out, unless it is nil. It returns the
// status. An error is a [client.Error].
func (c *Client) attempt(ctx context.Context, r request, out any) (int, error) {
	failed := &client.Error{Method: r.method, Path: r.path}
	ctx, cancel := context.WithTimeout(ctx, max(r.timeout, callTimeout))
	defer cancel()
	var body io.Reader
	var size int64
	if r.body != nil {
		var err error
		if body, size, err = r.body(); err != nil {
			failed.Err = err
			return 0, failed
		}
	}
	address := c.cfg.Endpoint + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		failed.Err = err
		return 0, failed
	}
	if r.body != nil {
		req.ContentLength = size
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-Drone-Token", c.cfg.Secret)
	resp, err := c.http.Do(req)
	if err != nil {
		failed.Err = err
		return 0, failed
	}
	defer resp.Body.Close() //nolint:errcheck // the answer has been read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode > 299:
		failed.Status, failed.Message = resp.StatusCode, string(b[:min(len(b), maxMessage)])
		if resp.StatusCode == http.StatusInternalServerError && strings.Contains(failed.Message, conflictMessage) {
			failed.Status = http.StatusConflict
		}
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			failed.RetryAfter = min(time.Duration(max(s, 0))*time.Second, time.Minute)
		}
		return failed.Status, failed
	case err != nil:
		failed.Err = err
		return 0, failed
	case len(b) > maxAnswer:
		failed.Err = client.ErrTooLarge
		return 0, failed
	case out != nil && resp.StatusCode != http.StatusNoContent:
		if json.Unmarshal(b, out) != nil { // the error could quote a secret
			failed.Err = fmt.Errorf("%w: it is not the expected JSON", client.ErrMalformed)
			return 0, failed
		}
	}
	return resp.StatusCode, nil
}

// call makes a call until it succeeds, fails for good, or ctx ends.
func (c *Client) call(ctx context.Context, r request, out any) (int, error) {
	pause := newPause()
	for refused := 0; ; {
		status, err := c.attempt(ctx, r, out)
		if err == nil || !temporary(err) {
			return status, err
		}
		if status == http.StatusInternalServerError {
			if refused++; refused >= serverErrors {
				return status, err
			}
		}
		c.cfg.Log.Debug().Err(err).Msg("trying a call to the Drone server again")
		if !pause.wait(ctx, err) {
			return status, err
		}
	}
}

// temporary reports whether a call may succeed later.
func temporary(err error) bool {
	return errors.Is(err, client.ErrRetryable) || errors.Is(err, client.ErrMalformed)
}

// pause is a back-off between attempts.
type pause struct{ next time.Duration }

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 10 * time.Second
)

func newPause() *pause { return &pause{next: shortestPause} }

// wait pauses, longer each time and at least as long as the server asks for. It returns false if
// ctx ends first.
func (p *pause) wait(ctx context.Context, err error) bool {
	d := p.next/2 + rand.N(p.next/2) //nolint:gosec // no secret
	var e *client.Error
	if errors.As(err, &e) {
		d = max(d, e.RetryAfter)
	}
	p.next = min(2*p.next, longestPause)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func stagePath(id int64) string { return "/rpc/v2/stage/" + strconv.FormatInt(id, 10) }

func stepPath(id int64) string { return "/rpc/v2/step/" + strconv.FormatInt(id, 10) }

// ping checks the address and the secret.
func (c *Client) ping(ctx context.Context) error {
	_, err := c.attempt(ctx, request{method: http.MethodPost, path: "/rpc/v2/ping"}, nil)
	return err
}

// fetch returns the details of a stage.
func (c *Client) fetch(ctx context.Context, id int64) (*details, error) {
	d := &details{}
	_, err := c.call(ctx, request{method: http.MethodGet, path: stagePath(id)}, d)
	if err != nil {
		return nil, err
	}
	if d.Stage.number("id") != id || d.Build.number("id") == 0 {
		return nil, &client.Error{Method: http.MethodGet, Path: stagePath(id), Err: client.ErrMalformed}
	}
	return d, nil
}
