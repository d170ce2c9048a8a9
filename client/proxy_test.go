package client_test

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
)

// proxy is a forward proxy that sends every request to one target.
type proxy struct {
	*httptest.Server
	target string // host:port
	auth   string // the Proxy-Authorization that it wants; empty: none

	mu   sync.Mutex
	seen []string // method and host of each request
	wg   sync.WaitGroup
}

func startProxy(t *testing.T, target, auth string) *proxy {
	t.Helper()
	p := &proxy{target: strings.TrimPrefix(strings.TrimPrefix(target, "http://"), "https://"), auth: auth}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() { p.CloseClientConnections(); p.Close(); p.wg.Wait() })
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, r.Method+" "+r.Host)
	p.mu.Unlock()
	if r.Header.Get("Proxy-Authorization") != p.auth {
		answer(w, http.StatusProxyAuthRequired, "who are you?")
		return
	}
	if r.Method == http.MethodConnect {
		p.tunnel(w, r)
		return
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+p.target+r.URL.RequestURI(), r.Body)
	if err != nil {
		answer(w, 502, err.Error())
		return
	}
	out.Header = r.Header.Clone()
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(out)
	if err != nil {
		answer(w, 502, err.Error())
		return
	}
	defer func() { _ = resp.Body.Close() }()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	far, err := new(net.Dialer).DialContext(r.Context(), "tcp", p.target)
	if err != nil {
		answer(w, 502, err.Error())
		return
	}
	p.wg.Add(1) // before the server stops to wait for this call
	defer p.wg.Done()
	w.WriteHeader(http.StatusOK)
	near, read, err := http.NewResponseController(w).Hijack() // the client may have sent its first bytes already
	if err != nil {
		_ = far.Close()
		return
	}
	shut := func() { _ = far.Close(); _ = near.Close() }
	p.wg.Go(func() { defer shut(); _, _ = io.Copy(far, read) })
	p.wg.Go(func() { defer shut(); _, _ = io.Copy(near, far) })
}

func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

// config returns the settings for the proxy.
func (p *proxy) config(t *testing.T) client.ProxyConfig {
	t.Helper()
	host, port, err := net.SplitHostPort(p.Listener.Addr().String())
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return client.ProxyConfig{Host: host, Port: n}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// Rule C5: calls over http use the configured proxy with its credentials.
func TestCallsGoThroughTheProxy(t *testing.T) {
	t.Parallel()
	s := serve(t, always(200, `{"resource":{"delegateId":"d"}}`))
	p := startProxy(t, s.URL, basic("u", "p@ss/wörd:"))
	cfg := p.config(t)
	cfg.User, cfg.Password = "u", "p@ss/wörd:"
	_, err := register(t, connect(t, "http://manager.example", client.WithProxy(cfg)))
	require.NoError(t, err)
	assert.Equal(t, []string{"POST manager.example"}, p.requests())
	assertToken(t, s.requests()[0])
}

// Rule C5: calls over https use a tunnel of the proxy.
func TestTLSGoesThroughTheProxysTunnel(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	s := serveTLS(t, ca, nil)
	p := startProxy(t, s.URL, basic("u", "fake-password"))
	cfg := p.config(t)
	cfg.User, cfg.Password = "u", "fake-password"
	// The proxy leads every port to the target, so the certificate fits.
	c := connect(t, "https://127.0.0.1:1", caDir(t, ca), client.WithProxy(cfg))
	_, err := register(t, c)
	require.NoError(t, err)
	assert.Equal(t, []string{"CONNECT 127.0.0.1:1"}, p.requests())

	cfg.Password = "fake-wrong"
	_, err = register(t, connect(t, "https://127.0.0.1:1", caDir(t, ca), client.WithProxy(cfg)))
	require.ErrorContains(t, err, "Proxy Authentication Required")
	assert.NotContains(t, err.Error(), "fake-wrong")
}

// Rule C5: the client calls destinations of NO_PROXY without the proxy.
func TestNoProxyIsCalledDirectly(t *testing.T) {
	t.Parallel()
	s := serve(t, always(200, `{"resource":{"delegateId":"d"}}`))
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	for list, direct := range map[string]bool{
		"": false, "*": true, "other.example, 127.0.0.1": true, "127.0.0.0/8": true, "10.0.0.0/8": false,
		"127.0.0.1:" + port: true, "127.0.0.1:1": false, "0.1": false,
	} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, s.URL, "")
			cfg := p.config(t)
			cfg.NoProxy = list
			_, err := register(t, connect(t, s.URL, client.WithProxy(cfg)))
			require.NoError(t, err)
			assert.Equal(t, direct, len(p.requests()) == 0)
		})
	}
}

// Names match as a whole, with their subdomains.
func TestNoProxyNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		list, endpoint string
		direct         bool
	}{
		{"manager.example", "http://manager.example", true},
		{"manager.example", "http://Manager.Example.", true},
		{"example", "http://manager.example", true},
		{".example", "http://manager.example", true},
		{"*.example", "http://manager.example", true},
		{".manager.example", "http://manager.example", false},
		{"ager.example", "http://manager.example", false},
		{"manager.example:80", "http://manager.example", true},
		{"manager.example:443", "http://manager.example", false},
		{"manager.example:8080", "http://manager.example:8080", true},
		{"::1", "http://[::1]", true},
		{"[::1]:80", "http://[::1]", true},
		{"fe80::/10", "http://[fe80::1]", true},
		{"::1", "http://[::2]", false},
	} {
		t.Run(tc.list+" "+tc.endpoint, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, tc.endpoint, nil)
			require.NoError(t, err)
			u, err := client.ProxyFor(client.ProxyConfig{Host: "proxy.example", NoProxy: tc.list}, r)
			require.NoError(t, err)
			assert.Equal(t, tc.direct, u == nil)
		})
	}
}

func TestProxySettings(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://manager.example", nil)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		cfg  client.ProxyConfig
		want string
		err  string
	}{
		"defaults":         {client.ProxyConfig{Host: "p.example"}, "http://p.example:80", ""},
		"https":            {client.ProxyConfig{Scheme: "HTTPS", Host: "p.example"}, "https://p.example:443", ""},
		"socks":            {client.ProxyConfig{Scheme: "socks5", Host: "::1", Port: 99, User: "u", Password: "p:/@"}, "socks5://u:p%3A%2F%40@[::1]:99", ""},
		"unknown scheme":   {client.ProxyConfig{Scheme: "ftp", Host: "p"}, "", "http, https or socks5"},
		"no host":          {client.ProxyConfig{Port: 1}, "", "no host"},
		"a URL as host":    {client.ProxyConfig{Host: "http://u:fake-password@p"}, "", "separate settings"},
		"port":             {client.ProxyConfig{Host: "p", Port: 70000}, "", "between 1 and 65535"},
		"password alone":   {client.ProxyConfig{Host: "p", Password: "fake-password"}, "", "no user"},
		"a wrong no-proxy": {client.ProxyConfig{Host: "p", NoProxy: "10.0.0.0/99"}, "", "is not a network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := client.ProxyFor(tc.cfg, r)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				assert.NotContains(t, err.Error(), "fake-password")
				_, err = client.New("https://manager.example", account, fakeSecret, client.WithProxy(tc.cfg))
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, u.String())
		})
	}
}

// Rule C5: without settings the environment applies. net/http reads it once per
// process, so the test starts another process.
func TestTheEnvironmentsProxyIsUsed(t *testing.T) {
	t.Parallel()
	const marker = "DLITE_TEST_PROXIED_CALL"
	if os.Getenv(marker) != "" {
		_, err := register(t, connect(t, "http://manager.example"))
		require.NoError(t, err)
		return
	}
	s := serve(t, always(200, `{"resource":{"delegateId":"d"}}`))
	p := startProxy(t, s.URL, basic("u", "fake"))
	cmd := exec.CommandContext(within(t), os.Args[0], "-test.run=^TestTheEnvironmentsProxyIsUsed$", "-test.v")
	cmd.Env = append(os.Environ(), marker+"=1", "NO_PROXY=", "no_proxy=",
		"HTTP_PROXY="+strings.Replace(p.URL, "http://", "http://u:fake@", 1), "http_proxy=", "REQUEST_METHOD=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, []string{"POST manager.example"}, p.requests())
}
