package connector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/delegate-io/dlite/secrets"
)

// probe sends the requests of one test, and reports each part of the way to the server.
type probe struct {
	c         *connector
	set       *secrets.Set
	report    *report
	transport *http.Transport
	dialer    *dialer
	wait      time.Duration // of the whole test

	mu         sync.Mutex
	step, host string // the part that is running; guarded by mu
}

const (
	// maxAnswer is the largest part of an answer that is read, in bytes.
	maxAnswer = 1 << 20
	// maxRedirects is the largest number of redirects on one server.
	maxRedirects = 5
	// soon is how long before its end a certificate is reported.
	soon = 14 * 24 * time.Hour
)

// newProbe returns the probe of a connector.
func newProbe(c *connector, set *secrets.Set, network *tester, timeout time.Duration) (*probe, *failure) {
	p := &probe{c: c, set: set, report: newReport(set), transport: network.base.Clone(), wait: timeout}
	// A third of the time is for one connection, so that the report can say more than that the time is over.
	p.dialer = &dialer{report: p.report, resolver: network.resolver, timeout: timeout / 3, phase: p.enter}
	p.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		proxy, _ := ctx.Value(proxyKey{}).(*url.URL)
		return p.dialer.dial(ctx, network, address, proxy != nil && address == hostPort(proxy))
	}
	p.transport.DialTLSContext = nil
	p.transport.ResponseHeaderTimeout = 0 // the time-out of the test
	p.transport.TLSHandshakeTimeout = 0
	p.transport.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, req *http.Request, resp *http.Response) error {
		if f := explainProxy(req.Host, resp.StatusCode); f != nil {
			return f
		}
		p.report.ok(stepProxy, "the proxy connects to %s", req.Host)
		return nil
	}
	config := p.transport.TLSClientConfig.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	config.Certificates, config.GetClientCertificate = nil, nil // those for the manager
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	if f := p.trust(config); f != nil {
		return nil, f
	}
	p.transport.TLSClientConfig = config
	return p, nil
}

// trust adds the CA and the client certificate of the connector.
func (p *probe) trust(config *tls.Config) *failure {
	if ca := p.c.Options[optionCA]; ca != "" {
		roots := config.RootCAs
		if roots == nil {
			roots, _ = x509.SystemCertPool()
		}
		if roots == nil {
			roots = x509.NewCertPool()
		}
		roots = roots.Clone()
		if !roots.AppendCertsFromPEM([]byte(ca)) {
			return fail(stepAddress, "give it as PEM, beginning with -----BEGIN CERTIFICATE-----", "the option ca has no certificate")
		}
		config.RootCAs = roots
	}
	cert, key := p.c.Secrets[secretClientCert], p.c.Secrets[secretClientKey]
	if cert == "" && key == "" {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil { // the error may quote a part of the key
		return fail(stepAddress, "give both as PEM, and the key without a passphrase", "the secrets client_cert and client_key are not a certificate and its key")
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

type proxyKey struct{}

// hostPort returns the address that a transport dials for a proxy.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// enter notes the part of the test that runs.
func (p *probe) enter(step, host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.host = step, host
}

func (p *probe) current() (step, host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step, p.host
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
	url    *url.URL
}

// send sends a request and follows redirects on the same server. It returns a failure if there is no answer, or if the
// answer leads to another server.
func (p *probe) send(ctx context.Context, req *http.Request) (*answer, *failure) {
	for range maxRedirects + 1 {
		a, f := p.once(ctx, req)
		if f != nil {
			return nil, f
		}
		target, err := url.Parse(a.header.Get("Location"))
		if a.status < 300 || a.status > 399 || a.status == http.StatusNotModified || a.header.Get("Location") == "" || err != nil {
			return a, nil
		}
		target = req.URL.ResolveReference(target)
		if target.Scheme != req.URL.Scheme || target.Host != req.URL.Host {
			return nil, fail(stepAnswer, "if this is right, write the new address into the connector; otherwise a sign-in page or a proxy stands before the server",
				"%s redirects to %s://%s, and the test does not follow", req.URL.Host, target.Scheme, target.Host)
		}
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			return a, nil
		}
		next := req.Clone(ctx)
		next.URL = target
		req = next
	}
	return nil, fail(stepAnswer, "correct the path in the address of the connector", "%s answers with more than %d redirects", req.URL.Host, maxRedirects)
}

func (p *probe) once(ctx context.Context, req *http.Request) (*answer, *failure) {
	p.maskCredential(req.Header.Get("Authorization"))
	host := req.URL.Host
	ctx = httptrace.WithClientTrace(ctx, p.trace(host))
	var via *url.URL
	if p.transport.Proxy != nil {
		var err error
		if via, err = p.transport.Proxy(req); err != nil {
			return nil, fail(stepProxy, "correct HTTPS_PROXY and HTTP_PROXY of the delegate", "the proxy setting of the delegate is not a URL")
		}
	}
	if via != nil {
		ctx = context.WithValue(ctx, proxyKey{}, via)
	}
	p.enter(stepConnection, host)
	req = req.WithContext(ctx)
	req.Header.Set("User-Agent", "dlite-connector-test")
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, p.explain(ctx, host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, p.explain(ctx, host, err)
	}
	if resp.StatusCode == http.StatusProxyAuthRequired {
		return nil, explainProxy(host, resp.StatusCode)
	}
	return &answer{resp.StatusCode, resp.Header, body, req.URL}, nil
}

// maskCredential masks a credential that a request carries, also if it was made from a secret.
func (p *probe) maskCredential(authorization string) {
	if authorization == "" {
		return
	}
	p.set.Add(authorization)
	for i := range authorization {
		if authorization[i] == ' ' {
			p.set.Add(authorization[i+1:])
			return
		}
	}
}

func (p *probe) trace(host string) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		ConnectDone: func(string, string, error) {},
		TLSHandshakeStart: func() {
			p.enter(stepTLS, host)
		},
		TLSHandshakeDone: func(state tls.ConnectionState, err error) {
			if err != nil {
				return // RoundTrip returns it
			}
			p.reportTLS(host, state)
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { p.enter(stepAnswer, host) },
	}
}

func (p *probe) reportTLS(host string, state tls.ConnectionState) {
	if len(state.PeerCertificates) == 0 {
		return
	}
	until := state.PeerCertificates[0].NotAfter
	remedy := ""
	if time.Until(until) < soon {
		remedy = "renew the certificate of the server: it ends soon"
	}
	p.report.advise(stepTLS, remedy, "%s has a valid certificate until %s (%s)", host, until.UTC().Format(time.DateOnly), tls.VersionName(state.Version))
}

// explain explains why there is no answer.
func (p *probe) explain(ctx context.Context, host string, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	step, at := p.current()
	if ctx.Err() != nil || isTimeout(err) {
		f := slow(step, at)
		f.message += " (the test had " + p.wait.String() + ")"
		return f
	}
	if step == stepTLS {
		return explainTLS(host, err, time.Now())
	}
	var unexpected *tls.CertificateVerificationError
	if errors.As(err, &unexpected) {
		return explainTLS(host, err, time.Now())
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return explainTLS(host, err, time.Now())
	}
	return fail(stepAnswer, "check that the server speaks HTTP on this port, and whether the address needs https://", "%s does not answer as an HTTP server: %s", host, p.plain(err))
}

// plain returns the text of an error without the URL, which may have more than the host.
func (p *probe) plain(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

// close ends the connections of the probe.
func (p *probe) close() { p.transport.CloseIdleConnections() }
