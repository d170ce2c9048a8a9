package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnAddressHasALimitOfConnections(t *testing.T) {
	t.Parallel()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := LimitConnections(10, 2)(inner)
	defer func() { require.NoError(t, l.Close()) }()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	connect := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	connect()
	connect()
	first, second := <-accepted, <-accepted
	_, err = connect().Read(make([]byte, 1))
	require.Error(t, err, "the third connection is closed")

	require.NoError(t, first.Close())
	_ = first.Close() // a second Close must not count
	connect()
	third := <-accepted
	_, err = connect().Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
}

func TestATokenHasALimitOfRequests(t *testing.T) {
	t.Parallel()
	held, let := make(chan struct{}), make(chan struct{})
	h := LimitRequests(1, "Authorization", "X-Token")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- struct{}{}
			<-let
		}
	}))
	call := func(path, header, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
		r.Header.Set(header, token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call("/held", "X-Token", "visibly-fake-1")
	}()
	<-held
	refused := call("/", "X-Token", "visibly-fake-1")
	assert.Equal(t, http.StatusTooManyRequests, refused.Code)
	assert.Equal(t, "1", refused.Header().Get("Retry-After"))
	assert.NotContains(t, refused.Body.String(), "visibly-fake")
	assert.Equal(t, http.StatusOK, call("/", "X-Token", "visibly-fake-2").Code)
	assert.Equal(t, http.StatusOK, call("/", "Authorization", "").Code)
	close(let)
	<-done
	assert.Equal(t, http.StatusOK, call("/", "X-Token", "visibly-fake-1").Code)
}

// DNS rebinding: the browser sends the name of the page as Host. A form or a script of
// another origin carries its origin.
func TestAWebPageReachesNoLoopbackPort(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(RefuseWebPages(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(s.Close)
	for _, c := range []struct {
		method, host, header, value string
		want                        int
	}{
		{http.MethodGet, "", "", "", http.StatusOK},
		{http.MethodPost, "localhost:3001", "", "", http.StatusOK},
		{http.MethodGet, "[::1]:3001", "", "", http.StatusOK},
		{http.MethodGet, "127.0.0.1", "", "", http.StatusOK},
		{http.MethodGet, "evil.example:3001", "", "", http.StatusForbidden},
		{http.MethodPost, "evil.example", "", "", http.StatusForbidden},
		{http.MethodGet, "127.0.0.1.evil.example", "", "", http.StatusForbidden},
		{http.MethodGet, "10.0.0.1:80", "", "", http.StatusForbidden},
		{http.MethodPost, "", "Origin", "http://evil.example", http.StatusForbidden},
		{http.MethodPost, "", "Origin", "null", http.StatusForbidden},
		{http.MethodPost, "", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{http.MethodPost, "localhost:1", "Origin", "http://localhost:1", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, s.URL, nil)
		require.NoError(t, err)
		req.Host = c.host
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		resp, err := s.Client().Do(req)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, c.want, resp.StatusCode, "%+v", c)
	}
}
