package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Config configures a [Client]. URL or URLs, Account, and Token or TokenSource are required.
type Config struct {
	// URL is the address of the manager. It may have a path, for a manager behind a proxy.
	URL string
	// URLs, in place of URL, are the addresses of several managers of one store. The client calls the one that answered
	// last. A call that no manager answers there, or with a status from 500 on, is sent to the next address, unless it could
	// act twice.
	URLs []string
	// Account is the id of the account.
	Account string
	// Token is a token of the account. TokenSource returns one for each request, in place of Token, for tokens that
	// expire. It must be safe for concurrent use.
	Token       string
	TokenSource func(context.Context) (string, error)
	// LogURL is the address of the log service. Empty means that of the manager, where the bundled manager serves it.
	LogURL string
	// HTTP sends the requests. Its Timeout should be 0, because some calls last long. Nil means a client with the
	// settings of http.DefaultTransport. Without a CheckRedirect no redirect is followed, because the token would go to
	// the other address.
	HTTP *http.Client
	// RetryFor is how long a call is repeated. 0 means 30 seconds. A negative value means that a call is sent once to each
	// address.
	RetryFor time.Duration
	// Timeout bounds a call at one address, without the time that the manager holds it. 0 means 30 seconds. A second is
	// added for each 32 KiB of the request, for slow connections.
	Timeout time.Duration
	// UserAgent is the header User-Agent. Empty means "dlite-api".
	UserAgent string
}

// Client calls the API of a manager for one account. It is safe for concurrent use.
type Client struct {
	cfg            Config
	managers, logs *servers
}

// maxAnswer bounds an answer, in bytes. The state of a stage may have 10,000 steps with outputs.
const maxAnswer = 256 << 20

// New returns a client. It sends no request.
func New(cfg Config) (*Client, error) {
	if len(cfg.URLs) == 0 {
		cfg.URLs = []string{cfg.URL}
	}
	managers, err := newServers("URL", cfg.URLs...)
	if err != nil {
		return nil, err
	}
	logs := managers
	if cfg.LogURL != "" {
		if logs, err = newServers("LogURL", cfg.LogURL); err != nil {
			return nil, err
		}
	}
	switch {
	case cfg.Account == "":
		return nil, errors.New("the client of the manager needs an Account")
	case cfg.TokenSource == nil && cfg.Token == "":
		return nil, errors.New("the client of the manager needs a Token or a TokenSource")
	}
	if cfg.TokenSource == nil {
		token := cfg.Token
		cfg.TokenSource = func(context.Context) (string, error) { return token, nil }
	}
	sender := http.Client{}
	if cfg.HTTP != nil {
		sender = *cfg.HTTP
	}
	if sender.CheckRedirect == nil {
		sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	cfg.HTTP = &sender
	if cfg.RetryFor == 0 {
		cfg.RetryFor = 30 * time.Second
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "dlite-api"
	}
	return &Client{cfg: cfg, managers: managers, logs: logs}, nil
}

// call is a call of the API.
type call struct {
	method string
	path   []string // segments below the address, not escaped
	query  url.Values
	body   any           // encoded as JSON unless nil
	hold   time.Duration // how long the manager may hold the call
	// once means that a repeated call could act twice.
	once bool
	// logs sends the call to the log service.
	logs bool
	// header has further headers.
	header map[string]string
}

func get(path ...string) *call    { return &call{method: http.MethodGet, path: path} }
func post(path ...string) *call   { return &call{method: http.MethodPost, path: path} }
func put(path ...string) *call    { return &call{method: http.MethodPut, path: path} }
func remove(path ...string) *call { return &call{method: http.MethodDelete, path: path} }

func (c *call) with(body any) *call       { c.body = body; return c }
func (c *call) asking(q url.Values) *call { c.query = q; return c }
func (c *call) onlyOnce() *call           { c.once = true; return c }

// fetch executes a call and decodes its answer into a T.
func fetch[T any](ctx context.Context, c *Client, what *call) (out T, err error) {
	err = c.do(ctx, what, func(body io.Reader) error {
		out = *new(T) // an earlier attempt may have read a part
		return json.NewDecoder(body).Decode(&out)
	})
	return out, err
}

// run executes a call whose answer has no content.
func (c *Client) run(ctx context.Context, what *call) error {
	return c.do(ctx, what, func(io.Reader) error { return nil })
}

// do executes a call, and repeats it if that is allowed. Read gets the body of a successful answer.
func (c *Client) do(ctx context.Context, what *call, read func(io.Reader) error) error {
	var body []byte
	if what.body != nil {
		var err error
		if body, err = json.Marshal(what.body); err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
	}
	repeated := false
	return c.repeat(ctx, what, func(base *url.URL) error {
		err := c.attempt(ctx, base, what, body, read)
		if gone := (*Error)(nil); repeated && what.method == http.MethodDelete && errors.As(err, &gone) && gone.Status == http.StatusNotFound {
			err = nil // the attempt without an answer has deleted it
		}
		repeated = true
		return err
	})
}

// repeat makes attempts at the addresses until one succeeds or fails with a permanent error, or until the call has been
// repeated for long enough.
func (c *Client) repeat(ctx context.Context, what *call, attempt func(base *url.URL) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 100*time.Millisecond, 5*time.Second
	limit := backoff.WithMaxElapsedTime(c.cfg.RetryFor)
	if c.cfg.RetryFor < 0 {
		limit = backoff.WithMaxTries(1)
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, c.next(ctx, what, c.round(ctx, what, attempt))
	}, backoff.WithBackOff(pauses), limit)
	var pause *retryAfterError
	if errors.As(err, &pause) {
		err = pause.cause
	}
	var permanent *backoff.PermanentError
	if errors.As(err, &permanent) {
		err = permanent.Err
	}
	return err
}

// retryAfterError asks for a pause, and keeps the error behind it.
type retryAfterError struct {
	*backoff.RetryAfterError

	cause error
}

func (e *retryAfterError) Unwrap() error { return e.RetryAfterError }

// next marks an error after which a call must not be repeated, and sets the pause that the manager asks for.
func (c *Client) next(ctx context.Context, what *call, err error) error {
	var refused *Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, errToken):
		return backoff.Permanent(err)
	case !errors.As(err, &refused): // no answer, or an incomplete one
		if what.once {
			return backoff.Permanent(err)
		}
		return err
	case refused.Status == http.StatusTooManyRequests: // the manager did nothing
	case !refused.temporary() || what.once:
		return backoff.Permanent(err)
	}
	if refused.RetryAfter > 0 {
		return &retryAfterError{&backoff.RetryAfterError{Duration: refused.RetryAfter}, err}
	}
	return err
}

// round makes an attempt at the current address, and at the other ones while none answers.
func (c *Client) round(ctx context.Context, what *call, attempt func(base *url.URL) error) error {
	at := c.servers(what)
	var failed []error
	for range at.all {
		base := at.get()
		err := attempt(base)
		if err == nil || answered(err) || ctx.Err() != nil || errors.Is(err, errToken) {
			return err
		}
		at.leave(base)
		if len(at.all) == 1 || what.once {
			return err
		}
		failed = append(failed, fmt.Errorf("%s: %w", base.Host, err))
	}
	return errors.Join(failed...)
}

// attempt sends one request.
func (c *Client) attempt(ctx context.Context, base *url.URL, what *call, body []byte, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout+what.hold+time.Duration(len(body)>>15)*time.Second)
	defer cancel()
	answer, err := c.send(ctx, base, what, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := read(io.LimitReader(answer.Body, maxAnswer)); err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", what.method, answer.Request.URL.Path, err)
	}
	return nil
}

// send sends a request. It returns an [Error] if the answer is not a success.
func (c *Client) send(ctx context.Context, base *url.URL, what *call, body []byte) (*http.Response, error) {
	request, err := c.request(ctx, base, what, body)
	if err != nil {
		return nil, err
	}
	answer, err := c.cfg.HTTP.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the manager: %w", err)
	}
	if answer.StatusCode >= 300 {
		defer func() { _ = answer.Body.Close() }()
		return nil, errorOf(answer)
	}
	return answer, nil
}

// errToken marks the failure to get a token.
var errToken = errors.New("no token for the manager")

func (c *Client) request(ctx context.Context, base *url.URL, what *call, body []byte) (*http.Request, error) {
	q := url.Values{"accountId": {c.cfg.Account}}
	if what.logs {
		q = url.Values{"accountID": {c.cfg.Account}}
	}
	for name, values := range what.query {
		q[name] = values
	}
	target := *base
	escaped := base.EscapedPath()
	for _, part := range what.path {
		target.Path += "/" + part
		escaped += "/" + url.PathEscape(part)
	}
	target.RawPath, target.RawQuery = escaped, q.Encode()
	r, err := http.NewRequestWithContext(ctx, what.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("building the request: %w", err)
	}
	token, err := c.cfg.TokenSource(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errToken, err)
	}
	if what.logs {
		r.Header.Set("X-Harness-Token", token)
	} else {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("User-Agent", c.cfg.UserAgent)
	if what.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range what.header {
		r.Header.Set(name, value)
	}
	return r, nil
}

// maxHold is how long the manager holds a call at most.
const maxHold = 60 * time.Second

// await repeats a held call until done reports that its answer is final.
func await[T any](ctx context.Context, c *Client, done func(T) bool, path ...string) (T, error) {
	for {
		held := get(path...).asking(url.Values{"wait": {"60"}})
		held.hold = maxHold
		out, err := fetch[T](ctx, c, held)
		if err != nil || done(out) {
			return out, err
		}
	}
}
