package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/delegate-io/dlite/internal/retryafter"
)

// call is one call of the interface: its request, its number of attempts, and the
// result of the previous attempts. It is used once.
type call struct {
	h      *HTTP
	method string
	path   string // escaped, with the endpoint's prefix
	query  string
	body   []byte // may be nil

	attempts int           // 0 means no limit
	wait     time.Duration // time for which the manager may hold the call

	// read decodes the body of a 2xx answer, nil if that is empty. The bytes are
	// valid until read returns. If read is nil, the body is ignored.
	read func(header http.Header, body []byte) error
	// grantsTask marks the call whose 2xx answer grants a task. A body that does not
	// decode is retried, and errors never contain it.
	grantsTask bool

	bearer *bearer
	// pauses returns the pauses between attempts. It is nil before the first.
	pauses *backoff.ExponentialBackOff
	// last is the failure of the latest attempt, nil before the first attempt.
	last *Error
	// malformed is the failure of the first 2xx answer that could not be read.
	malformed *Error
}

func (h *HTTP) newCall(method, path, query string, body []byte) *call {
	return &call{h: h, method: method, path: h.prefix + path, query: query, body: body, attempts: h.retries.Attempts}
}

// do makes a call. If the manager refuses a token that the client issued, do tries
// once more with a new token: the manager's clock or secret may have changed.
func (h *HTTP) do(ctx context.Context, c *call) error {
	if int64(len(c.body)) > h.maxBody {
		return c.newError(0, fmt.Errorf("%w: the request has %d bytes, the limit is %d", ErrTooLarge, len(c.body), h.maxBody))
	}
	for renewed := false; ; renewed = true {
		var err error
		if c.bearer, err = h.creds.bearer(); err != nil {
			return err
		}
		e := c.runAttempts(ctx)
		if e == nil {
			return nil
		}
		if e.Status == http.StatusUnauthorized && !renewed && h.creds.discard(c.bearer) {
			continue
		}
		return e
	}
}

// runAttempts attempts the call until it succeeds or must not be retried.
func (c *call) runAttempts(ctx context.Context) *Error {
	req, err := c.newRequest(ctx)
	if err != nil {
		return c.newError(0, err)
	}
	retry := retryablehttp.Client{
		HTTPClient:   c.h.client,
		RetryMax:     math.MaxInt,
		CheckRetry:   c.checkRetry,
		Backoff:      c.nextPause,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	if c.attempts > 0 {
		retry.RetryMax = c.attempts - 1
	}
	if c.wait > 0 {
		retry.HTTPClient = c.h.newHTTPClient(c.h.timeout + c.wait)
	}
	resp, err := retry.Do(req)
	if resp != nil {
		defer resp.Body.Close() //nolint:errcheck // the body was read
	}
	if err == nil && isSuccess(resp.StatusCode) {
		return nil
	}
	if own := (*Error)(nil); err == nil || errors.As(err, &own) {
		return c.last // an answer arrived, and it was a failure
	}
	return c.noAnswerError(ctx, err)
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }

// newRequest builds the request without parsing its URL again.
func (c *call) newRequest(ctx context.Context) (*retryablehttp.Request, error) {
	u := &url.URL{Scheme: c.h.base.Scheme, Host: c.h.base.Host, Path: c.path, RawQuery: c.query}
	if strings.IndexByte(c.path, '%') >= 0 {
		path, err := url.PathUnescape(c.path)
		if err != nil {
			return nil, fmt.Errorf("building the request: %w", err)
		}
		u.Path, u.RawPath = path, c.path
	}
	header := make(http.Header, 3)
	header["Authorization"] = c.bearer.header
	header["Content-Type"] = c.h.jsonType
	if c.h.creds.hash != nil {
		header[hashHeader] = c.h.creds.hash
	}
	r := &http.Request{
		Method: c.method, URL: u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	req, err := retryablehttp.FromRequest(r.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("building the request: %w", err)
	}
	if c.body != nil {
		if err := req.SetBody(c.body); err != nil { // every attempt sends the whole body
			return nil, fmt.Errorf("building the request: %w", err)
		}
	}
	req.SetResponseHandler(c.handleAnswer)
	return req, nil
}

// hashHeader has the spelling of the protocol. http.Header.Set would change it.
const hashHeader = "delegateTokenHash"

// handleAnswer reads an answer whose status needs no retry. It is part of the
// attempt: the time-out covers it, and its errors can be retried.
func (c *call) handleAnswer(resp *http.Response) error {
	if !isSuccess(resp.StatusCode) {
		return c.last
	}
	if c.read == nil {
		discard(resp.Body)
		return nil
	}
	buf, ok := c.h.buffers.Get().(*bytes.Buffer)
	if !ok {
		buf = new(bytes.Buffer)
	}
	defer c.h.putBuffer(buf)
	if err := c.readBody(buf, resp); err != nil {
		return c.unreadableError(resp, err, nil)
	}
	body := bytes.TrimSpace(buf.Bytes())
	if resp.StatusCode == http.StatusNoContent || len(body) == 0 {
		body = nil
	}
	if err := c.read(resp.Header, body); err != nil {
		return c.unreadableError(resp, err, body)
	}
	return nil
}

// readBody reads the whole body, up to the limit.
func (c *call) readBody(buf *bytes.Buffer, resp *http.Response) error {
	limit := c.h.maxBody
	if resp.ContentLength <= limit {
		if _, err := buf.ReadFrom(io.LimitReader(resp.Body, limit+1)); err != nil {
			return err
		}
		if int64(buf.Len()) <= limit {
			return nil
		}
	}
	return fmt.Errorf("%w: the answer has more than %d bytes", ErrTooLarge, limit)
}

// putBuffer returns a buffer to the pool, unless it has become large.
func (h *HTTP) putBuffer(buf *bytes.Buffer) {
	const maxPooled = 1 << 20
	if buf.Cap() <= maxPooled {
		buf.Reset()
		h.buffers.Put(buf)
	}
}

// discard reads the rest of a short body, so that the connection can be reused. For
// a long body a new connection is cheaper.
func discard(r io.Reader) {
	const short = 256 << 10
	_, _ = io.CopyN(io.Discard, r, short)
}

// unreadableError returns the failure of a 2xx answer whose body is invalid.
func (c *call) unreadableError(resp *http.Response, err error, body []byte) *Error {
	e := c.newError(resp.StatusCode, fmt.Errorf("%w: %w", ErrMalformed, err))
	if len(body) > 0 {
		e.Message = c.describeBody(body)
	}
	if c.malformed == nil {
		c.malformed = e
	}
	return e
}

// describeBody quotes the beginning of an invalid body. It quotes no part of a
// task, because its payload may contain secrets and errors are logged.
func (c *call) describeBody(body []byte) string {
	if c.grantsTask && (body[0] == '{' || body[0] == '[') {
		return fmt.Sprintf("the body has %d bytes of JSON, not quoted because they may contain secrets", len(body))
	}
	return fmt.Sprintf("the body begins with %q", excerpt(c.redact(body)))
}

// redact removes the credentials from the beginning of a body. It must run before
// the body is shortened, because a part of a token is not recognised.
func (c *call) redact(body []byte) []byte {
	return []byte(c.h.creds.redact(string(body[:min(len(body), maxErrorBody)]), c.bearer))
}

// maxErrorBody is the number of bytes of an error answer that are examined.
const maxErrorBody = 64 << 10

func (c *call) newError(status int, err error) *Error {
	return &Error{Method: c.method, Path: c.path, Status: status, Err: err}
}

// noAnswerError returns the failure of a call whose last attempt got no answer, or
// whose context ended.
func (c *call) noAnswerError(ctx context.Context, err error) *Error {
	ended := ctx.Err()
	if ended == nil {
		return c.newError(0, unwrapURLError(err))
	}
	e := c.newError(0, ended)
	if l := c.last; l != nil { // report the failure that was being retried
		e.Status, e.Message, e.RetryAfter = l.Status, l.Message, l.RetryAfter
		if l.Err != nil && !errors.Is(l.Err, ended) {
			e.Err = fmt.Errorf("%w; the previous attempt: %w", ended, l.Err)
		}
	}
	return e
}

// unwrapURLError removes the url.Error, which quotes the URL with its query.
func unwrapURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// statusError returns the failure of an answer with an error status. It reads the
// body.
func (c *call) statusError(ctx context.Context, resp *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // an incomplete message is still useful
	discard(resp.Body)
	e := c.newError(resp.StatusCode, nil)
	e.RetryAfter = retryafter.Parse(resp.Header, c.h.now())
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		e.Message = "the client does not follow redirects"
		if to, err := resp.Location(); err == nil {
			to = &url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
			e.Message += ": set the endpoint to the target, " + excerpt([]byte(to.String()))
		}
		return e
	}
	e.Message = messageOf(c.redact(body))
	if ended := ctx.Err(); ended != nil && e.isRetryable() {
		e.Err = ended // only the end of the context prevents a retry
	}
	return e
}
