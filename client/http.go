package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// HTTP is a [Client] for the delegate protocols over HTTP (rule C1). Make it with
// [New]. It is safe for concurrent use. It starts no goroutines except those of
// its idle connections, which [HTTP.CloseIdleConnections] ends.
type HTTP struct {
	protocol Protocol
	base     *url.URL // without a trailing slash
	prefix   string   // its path, escaped
	account  string   // the account id
	query    string   // accountId=..., escaped
	creds    *credentials
	log      zerolog.Logger
	now      func() time.Time

	waiting   func(stages map[string]int) // nil without WithWaiting
	transport http.RoundTripper
	git       gitNetwork
	client    *http.Client // with the time-out of a call that does not wait
	retries   Retries
	timeout   time.Duration
	maxBody   int64
	buffers   sync.Pool // of *bytes.Buffer, for answers

	jsonType []string // the Content-Type header, shared by all requests

	// names holds the names of registered delegates by id. Acquire of v2 sends them.
	names sync.Map
}

var _ Client = (*HTTP)(nil)

// New returns a client for the manager at an endpoint, such as
// "https://manager.example" or "https://proxy.example/manager". The secret of the
// account is 32 hexadecimal characters or the base64 of them. With [WithToken] it
// must be "". New does not connect. It returns an error for invalid settings and
// unreadable files, and no error contains a secret.
func New(endpoint, accountID, secret string, opts ...Option) (*HTTP, error) {
	cfg := newConfig(opts)
	h, err := newHTTP(endpoint, accountID, secret, cfg)
	if err != nil {
		return nil, fmt.Errorf("making a manager client: %w", err)
	}
	if cfg.insecure {
		h.log.Warn().Str("endpoint", h.base.Host).
			Msg("the certificate of the manager is not verified: an attacker on the network can read the account secret")
	}
	return h, nil
}

func newHTTP(endpoint, accountID, secret string, cfg *config) (*HTTP, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	base, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if accountID == "" {
		return nil, errors.New("the account id is empty")
	}
	creds, err := newCredentials(accountID, secret, cfg)
	if err != nil {
		return nil, err
	}
	transport := cfg.transport
	if transport == nil {
		if transport, err = newTransport(cfg); err != nil {
			return nil, err
		}
	}
	h := &HTTP{
		protocol: cfg.protocol, base: base, prefix: base.EscapedPath(),
		account: accountID, query: "accountId=" + url.QueryEscape(accountID),
		creds: creds, log: cfg.log, now: cfg.now, waiting: cfg.waiting,
		transport: transport, retries: cfg.retries, timeout: cfg.timeout, maxBody: cfg.maxBody,
		jsonType: []string{"application/json"},
	}
	if cfg.transport == nil {
		h.git = gitNetwork{files: trustFiles{caDir: cfg.caDir, certFile: cfg.certFile, keyFile: cfg.keyFile}, proxy: cfg.proxy}
	}
	h.client = h.newHTTPClient(h.timeout)
	return h, nil
}

// Transport returns the transport of the calls, with the certificates and the proxy of
// the options. Use it for other requests that leave the delegate, such as those to the
// log service.
func (h *HTTP) Transport() http.RoundTripper { return h.transport }

// newHTTPClient returns a client that limits the time of each attempt.
func (h *HTTP) newHTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     attemptTimeout{h.transport, timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// parseEndpoint does not quote the endpoint in errors: it may contain a password.
func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(endpoint))
	switch {
	case err != nil:
		return nil, errors.New("the endpoint is not a URL: it must look like https://manager.example")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the endpoint must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("the endpoint has no host: it must look like https://manager.example")
	case u.User != nil:
		return nil, errors.New("the endpoint contains a user or password: remove it, the manager has only accounts")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("the endpoint contains a query or a fragment: remove the ? or # and the text after it")
	}
	escaped := strings.TrimRight(u.EscapedPath(), "/")
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, errors.New("the path of the endpoint contains an invalid % escape")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: path, RawPath: escaped}, nil
}

// CloseIdleConnections closes the connections that no call uses. The client can
// still be used.
func (h *HTTP) CloseIdleConnections() {
	(&http.Client{Transport: h.transport}).CloseIdleConnections()
}

// Register implements [Client]. It sends a copy of r with the id and the secret of
// the account and with the flags of a polling delegate (docs/protocol.md 1). A zero
// LastHeartbeat becomes the current time.
func (h *HTTP) Register(ctx context.Context, r *Registration) (*Delegate, error) {
	c, err := h.newRegistrationCall("register", r)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Resource struct {
			DelegateID string `json:"delegateId"`
		} `json:"resource"`
	}
	c.read = func(_ http.Header, body []byte) error {
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		if answer.Resource.DelegateID == "" {
			return errors.New("the answer has no delegate id")
		}
		return nil
	}
	if err := h.do(ctx, c); err != nil {
		return nil, err
	}
	d := &Delegate{ID: answer.Resource.DelegateID, Name: r.DelegateName}
	h.names.Store(d.ID, d.Name)
	return d, nil
}

// Heartbeat implements [Client]. It completes a copy of r like [HTTP.Register].
func (h *HTTP) Heartbeat(ctx context.Context, r *Registration) error {
	if r.DelegateID == "" {
		return errNoDelegate
	}
	c, err := h.newRegistrationCall("heartbeat-with-polling", r)
	if err != nil {
		return err
	}
	c.attempts = 1
	if h.waiting != nil {
		c.read = func(_ http.Header, body []byte) error {
			var answer struct {
				Waiting map[string]int `json:"waitingStages"`
			}
			if json.Unmarshal(body, &answer) == nil && answer.Waiting != nil { // other managers answer anything
				h.waiting(answer.Waiting)
			}
			return nil
		}
	}
	return h.do(ctx, c)
}

// newRegistrationCall returns the call that sends a completed copy of r.
func (h *HTTP) newRegistrationCall(action string, r *Registration) (*call, error) {
	full := *r
	setDefault(&full.AccountID, h.account)
	if s := h.creds.secret.Reveal(); s != "" {
		full.Token = s
	}
	if full.LastHeartbeat == 0 {
		full.LastHeartbeat = h.now().UnixMilli()
	}
	full.NG, full.PollingModeEnabled, full.HeartbeatAsObject = true, true, true
	body, err := json.Marshal(&full)
	if err != nil {
		return nil, fmt.Errorf("encoding a registration: %w", err)
	}
	return h.newCall(http.MethodPost, "/api/agent/delegates/"+action, h.query, body), nil
}

// Unregister implements [Client].
func (h *HTTP) Unregister(ctx context.Context, u *Unregistration) error {
	full := *u
	full.NG = true
	body, err := json.Marshal(&full)
	if err != nil {
		return fmt.Errorf("encoding an unregistration: %w", err)
	}
	if err := h.do(ctx, h.newCall(http.MethodPost, "/api/agent/delegates/unregister", h.query, body)); err != nil {
		return err
	}
	h.names.Delete(u.DelegateID)
	return nil
}

// ReportCapacity implements [Client].
func (h *HTTP) ReportCapacity(ctx context.Context, delegateID string, maxStages int) error {
	d, err := segment("delegate", delegateID)
	if err != nil {
		return err
	}
	body := []byte(`{"maximumNumberOfBuilds":` + strconv.Itoa(maxStages) + `}`)
	return h.do(ctx, h.newCall(http.MethodPost, "/api/agent/delegates/register-delegate-capacity/"+d, h.query, body))
}

var errNoDelegate = errors.New("the delegate id is empty: register first")

// segment escapes an id for a path. It refuses ids that would change the meaning
// of the path.
func segment(what, id string) (string, error) {
	switch id {
	case "":
		if what == "delegate" {
			return "", errNoDelegate
		}
		return "", fmt.Errorf("the %s id is empty", what)
	case ".", "..":
		return "", fmt.Errorf("the %s id %q cannot be part of a path", what, id)
	}
	return url.PathEscape(id), nil
}
