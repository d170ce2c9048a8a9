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

	"github.com/hashicorp/go-retryablehttp"
)

// call is one call of the interface: a request, how often to attempt it, and
// what came of the attempts so far. It is used once.
type call struct {
	h      *HTTP
	method string
	path   string // escaped, with the endpoint's prefix
	query  string
	body   []byte // nil: none

	attempts int           // 0: without end
	wait     time.Duration // how long the manager may hold the call

	// read decodes a good answer's body, nil when it is empty. The body's bytes
	// are only valid until it returns. A nil read means that the body does not
	// matter.
	read func(header http.Header, body []byte) error
	// handsOut marks the call whose good answer gives away a task: a body that
	// does not decode is asked for again, and never shown.
	handsOut bool

	bearer *bearer
	// last is why the latest attempt failed, nil while there is none.
	last *Error
	// malformed is the first good answer that could not be read.
	malformed *Error
}

func (h *HTTP) newCall(method, path, query string, body []byte) *call {
	return &call{h: h, method: method, path: h.prefix + path, query: query, body: body, attempts: h.retries.Attempts}
}

// do makes a call. When the manager refuses a token that the client made, it
// tries once with a new one: the manager may have lost its clock or its secret.
func (h *HTTP) do(ctx context.Context, c *call) error {
	if int64(len(c.body)) > h.maxBody {
		return c.fail(0, fmt.Errorf("%w: the request has %d bytes, the limit is %d", ErrTooLarge, len(c.body), h.maxBody))
	}
	for renewed := false; ; renewed = true {
		var err error
		if c.bearer, err = h.creds.bearer(); err != nil {
			return err
		}
		e := c.run(ctx)
		if e == nil {
			return nil
		}
		if e.Status == http.StatusUnauthorized && !renewed && h.creds.drop(c.bearer) {
			continue
		}
		return e
	}
}

// run attempts the call until it succeeds or there is no point in going on.
func (c *call) run(ctx context.Context) *Error {
	req, err := c.request(ctx)
	if err != nil {
		return c.fail(0, err)
	}
	retry := retryablehttp.Client{
		HTTPClient:   c.h.client,
		RetryMax:     math.MaxInt,
		CheckRetry:   c.again,
		Backoff:      c.pause,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	if c.attempts > 0 {
		retry.RetryMax = c.attempts - 1
	}
	if c.wait > 0 { // the same transport, with more patience
		retry.HTTPClient = c.h.bounded(c.h.timeout + c.wait)
	}
	resp, err := retry.Do(req)
	if resp != nil {
		defer resp.Body.Close() //nolint:errcheck // it was read; there is nothing to lose
	}
	if err == nil && good(resp.StatusCode) {
		return nil
	}
	if own := (*Error)(nil); err == nil || errors.As(err, &own) {
		return c.last // an answer came, and it was no good
	}
	return c.noAnswer(ctx, err)
}

func good(status int) bool { return status >= 200 && status <= 299 }

// request builds the request without parsing its URL again.
func (c *call) request(ctx context.Context) (*retryablehttp.Request, error) {
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
		if err := req.SetBody(c.body); err != nil { // kept whole: every attempt sends all of it
			return nil, fmt.Errorf("building the request: %w", err)
		}
	}
	req.SetResponseHandler(c.answer)
	return req, nil
}

// hashHeader is spelled as the protocol spells it; net/http would change it.
const hashHeader = "delegateTokenHash"

// answer reads an answer that is worth no retry by its status. It is part of
// the attempt: what goes wrong here can be retried too, under the same time-out.
func (c *call) answer(resp *http.Response) error {
	if !good(resp.StatusCode) {
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
	defer c.h.release(buf)
	if err := c.load(buf, resp); err != nil {
		return c.unreadable(resp, err, nil)
	}
	body := bytes.TrimSpace(buf.Bytes())
	if resp.StatusCode == http.StatusNoContent || len(body) == 0 {
		body = nil
	}
	if err := c.read(resp.Header, body); err != nil {
		return c.unreadable(resp, err, body)
	}
	return nil
}

// load reads the whole body up to the limit.
func (c *call) load(buf *bytes.Buffer, resp *http.Response) error {
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

// release keeps a buffer for the next answer, unless it has grown.
func (h *HTTP) release(buf *bytes.Buffer) {
	const keep = 1 << 20
	if buf.Cap() <= keep {
		buf.Reset()
		h.buffers.Put(buf)
	}
}

// discard reads the rest of a short body, so that the connection can be used
// again. A long one costs less as a new connection.
func discard(r io.Reader) {
	const short = 256 << 10
	_, _ = io.CopyN(io.Discard, r, short)
}

// unreadable is the failure of a good answer whose body is not.
func (c *call) unreadable(resp *http.Response, err error, body []byte) *Error {
	e := c.fail(resp.StatusCode, fmt.Errorf("%w: %w", ErrMalformed, err))
	if len(body) > 0 {
		e.Message = c.sample(body)
	}
	if c.malformed == nil {
		c.malformed = e
	}
	return e
}

// sample shows the beginning of a body that could not be read. Of a task nothing
// is shown: its payload may hold secrets, and the error ends up in logs.
func (c *call) sample(body []byte) string {
	if c.handsOut && (body[0] == '{' || body[0] == '[') {
		return fmt.Sprintf("the body has %d bytes of JSON, not shown because they may hold secrets", len(body))
	}
	return fmt.Sprintf("the body begins with %q", excerpt(c.redact(body)))
}

// redact takes the credentials out of the beginning of a body, before it is cut
// to an excerpt: a part of a token is recognised no longer.
func (c *call) redact(body []byte) []byte {
	const enough = 64 << 10
	return []byte(c.h.creds.redact(string(body[:min(len(body), enough)]), c.bearer))
}

func (c *call) fail(status int, err error) *Error {
	return &Error{Method: c.method, Path: c.path, Status: status, Err: err}
}

// noAnswer is the failure of a call whose last attempt ended without an answer,
// or whose context ended.
func (c *call) noAnswer(ctx context.Context, err error) *Error {
	ended := ctx.Err()
	if ended == nil {
		return c.fail(0, cause(err))
	}
	e := c.fail(0, ended)
	if l := c.last; l != nil { // what the caller waited for in vain
		e.Status, e.Message, e.RetryAfter = l.Status, l.Message, l.RetryAfter
		if l.Err != nil && !errors.Is(l.Err, ended) {
			e.Err = fmt.Errorf("%w; the attempt before: %w", ended, l.Err)
		}
	}
	return e
}

// cause takes off net/http's wrapping, which quotes the URL with its query.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused is the failure that an answer's status tells. It reads the body.
func (c *call) refused(ctx context.Context, resp *http.Response) *Error {
	const enough = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(resp.Body, enough)) // half a message is better than none
	discard(resp.Body)
	e := c.fail(resp.StatusCode, nil)
	e.RetryAfter = retryAfter(resp.Header, c.h.now())
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		e.Message = "redirects are not followed"
		if to, err := resp.Location(); err == nil {
			to = &url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
			e.Message += ": set the endpoint to where it leads, " + excerpt([]byte(to.String()))
		}
		return e
	}
	e.Message = message(c.redact(body))
	if ended := ctx.Err(); ended != nil && e.retryable() {
		e.Err = ended // it would have gone on
	}
	return e
}
