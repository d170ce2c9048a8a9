package logger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/internal/retryafter"
)

// service makes the calls for one log (docs/protocol.md 4). It does not retry.
type service struct {
	base, query string
	token       string
	writer      string
	client      http.Client
	ownsClient  bool

	completion string // the header Complete of the latest answer about the stream
}

func newService(cfg *StreamConfig) *service {
	s := &service{
		base:   cfg.URL,
		query:  url.Values{"accountID": {cfg.Account}, "key": {cfg.Key}}.Encode(),
		token:  cfg.Token,
		writer: cmp.Or(cfg.Writer, rand.Text()),
	}
	if cfg.HTTPClient != nil {
		s.client = *cfg.HTTPClient
	} else {
		s.ownsClient = true
		s.client.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		}
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

func (s *service) close() {
	if s.ownsClient {
		s.client.CloseIdleConnections()
	}
}

func (s *service) openStream(ctx context.Context) error {
	return s.call(ctx, http.MethodPost, "/stream", "", nil, nil, nil)
}

// put appends a list of lines to the live stream. The stream has all lines before
// position next. With last, the service may complete the log.
func (s *service) put(ctx context.Context, next int64, list bodyFunc, last bool) error {
	header := http.Header{logheader.Resume: {strconv.FormatInt(next, 10)}}
	if last {
		header.Set(logheader.Complete, "true")
	}
	return s.call(ctx, http.MethodPut, "/stream", "", header, list, nil)
}

func (s *service) closeStream(ctx context.Context, snapshot bool) error {
	extra := ""
	if snapshot {
		extra = "&snapshot=true"
	}
	return s.call(ctx, http.MethodDelete, "/stream", extra, nil, nil, nil)
}

func (s *service) postBlob(ctx context.Context, body bodyFunc) error {
	return s.call(ctx, http.MethodPost, "/blob", "", nil, body, nil)
}

// probe asks for the archive, to learn whether the service answers. It returns an error only if
// a later call may succeed.
func (s *service) probe(ctx context.Context) error {
	err := s.call(ctx, http.MethodGet, "/blob", "", nil, nil, nil)
	if retryable(err) {
		return err
	}
	return nil
}

// uploadLink asks for a link for the upload of the archive.
func (s *service) uploadLink(ctx context.Context) (string, error) {
	var answer struct {
		Link string `json:"link"`
	}
	if err := s.call(ctx, http.MethodPost, "/blob/link/upload", "", nil, nil, &answer); err != nil {
		return "", err
	}
	if answer.Link == "" {
		return "", errors.New("the log service returned an empty upload link")
	}
	return answer.Link, nil
}

// putLink uploads to a link. The link authorises the upload. The token is not sent,
// because another server may serve the link.
func (s *service) putLink(ctx context.Context, link string, body bodyFunc) error {
	req, err := newRequest(ctx, http.MethodPut, link, body)
	if err != nil {
		// The cause would quote the link.
		return &statusError{op: "PUT to the upload link", err: errors.New("the link is not a URL"), final: true}
	}
	_, err = s.do(req, "PUT to the upload link", nil)
	return err
}

func (s *service) call(ctx context.Context, method, path, extra string, header http.Header, body bodyFunc, answer any) error {
	op := method + " " + path
	req, err := newRequest(ctx, method, s.base+path+"?"+s.query+extra, body)
	if err != nil {
		return &statusError{op: op, err: err, final: true}
	}
	maps.Copy(req.Header, header)
	req.Header.Set(logheader.Token, s.token)
	req.Header.Set(logheader.Writer, s.writer)
	answered, err := s.do(req, op, answer)
	if path == "/stream" && err == nil {
		s.completion = answered.Get(logheader.Complete)
	}
	return err
}

// bodyFunc opens the body for an attempt. A body with a Close method is closed after
// the last read.
type bodyFunc func() (r io.Reader, size int64)

func newRequest(ctx context.Context, method, url string, body bodyFunc) (*http.Request, error) {
	if body == nil {
		return http.NewRequestWithContext(ctx, method, url, nil)
	}
	r, size := body()
	if size == 0 {
		r = nil // sends the length 0 instead of an unknown length
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	req.GetBody = func() (io.ReadCloser, error) {
		r, _ := body()
		if c, ok := r.(io.ReadCloser); ok {
			return c, nil
		}
		return io.NopCloser(r), nil
	}
	return req, nil
}

// do sends a request. It returns the headers of a successful answer.
func (s *service) do(req *http.Request, op string, answer any) (http.Header, error) {
	resp, err := s.client.Do(req)
	if err != nil {
		// A url.Error quotes the URL with the key or the signature of the link.
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, &statusError{op: op, err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, &statusError{
			op: op, status: resp.StatusCode, message: messageOf(body),
			retryAfter: retryafter.Parse(resp.Header, time.Now()), next: nextPos(resp.Header.Get(logheader.Resume)),
		}
	}
	if err != nil {
		return nil, &statusError{op: op, err: fmt.Errorf("reading the answer: %w", err)}
	}
	if answer != nil {
		if err := json.Unmarshal(body, answer); err != nil {
			return nil, &statusError{op: op, err: fmt.Errorf("decoding the answer: %w", err), final: true}
		}
	}
	return resp.Header, nil
}

// messageOf returns the message of an error object, or the beginning of the text.
func messageOf(body []byte) string {
	var e struct {
		Message string `json:"error_msg"`
	}
	if json.Unmarshal(body, &e) == nil && e.Message != "" {
		return e.Message
	}
	return string(bytes.TrimSpace(body[:min(len(body), 200)]))
}

// nextPos parses a logheader.Resume. It returns -1 for invalid values.
func nextPos(text string) int64 {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return int64(n)
	}
	return -1
}

// statusError is the failure of a call.
type statusError struct {
	op      string
	status  int // 0 if no answer arrived
	message string
	err     error
	final   bool // a retry cannot succeed

	retryAfter time.Duration // from the header, 0 without one
	next       int64         // from the header, -1 without one
}

func (e *statusError) Error() string {
	if e.status == 0 {
		return fmt.Sprintf("%s: %v", e.op, e.err)
	}
	return fmt.Sprintf("%s: status %d: %s", e.op, e.status, e.message)
}

func (e *statusError) Unwrap() error { return e.err }

// retryable reports whether the same call may succeed later.
func retryable(err error) bool {
	var e *statusError
	if !errors.As(err, &e) || e.final {
		return false
	}
	switch e.status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	default:
		return e.status >= 500
	}
}
