package httpserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const shortPatience = 100 * time.Millisecond

// serve starts a server with the time-outs of New, but a short patience.
func serve(t *testing.T, h http.HandlerFunc, options ...func(*httptest.Server)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(guard(h, shortPatience))
	s.Config.WriteTimeout = shortPatience
	for _, o := range options {
		o(s)
	}
	if s.TLS != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func dial(t *testing.T, s *httptest.Server, request string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	return c
}

const silentPut = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"

func TestASilentBodyEnds(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		result <- err
	})
	dial(t, s, silentPut)
	assert.True(t, TooSlow(<-result))
}

// Each byte arrives in time, but all of them together do not.
func TestATricklingBodyEnds(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		result <- err
	})
	c := dial(t, s, silentPut)
	tick := time.NewTicker(shortPatience / 10)
	defer tick.Stop()
	for range 100 {
		select {
		case err := <-result:
			assert.True(t, TooSlow(err))
			return
		case <-tick.C:
			_, _ = c.Write([]byte("x"))
		}
	}
	t.Fatal("the body has taken ten times as long as it may")
}

// The time in which the handler does not read is not the client's.
func TestASlowHandlerReadsTheWholeBody(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 4)
		n, err := io.ReadFull(r.Body, b)
		assert.NoError(t, err)
		<-time.After(2 * shortPatience)
		m, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		_, _ = fmt.Fprint(w, int64(n)+m)
	})
	resp, err := post(t, s, strings.NewReader(strings.Repeat("x", 100_000)))
	require.NoError(t, err)
	assert.Equal(t, "100000", resp)
}

func post(t *testing.T, s *httptest.Server, body io.Reader) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	require.NoError(t, err)
	resp, err := s.Client().Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// The server itself reads on after an answer. It must not wait for a client that sends
// nothing.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	c := dial(t, s, silentPut)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

func TestAReaderThatAcceptsNothingIsDisconnected(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		b := make([]byte, 1<<20)
		for range 1000 {
			if _, err := w.Write(b); err != nil {
				result <- err
				return
			}
		}
		result <- nil
	})
	dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.True(t, TooSlow(<-result))
}

// Held calls and streams pause for longer than the patience, with HTTP/1 and HTTP/2.
func TestAnAnswerMayPause(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*httptest.Server){
		"HTTP/1.1": func(*httptest.Server) {},
		"HTTP/2.0": func(s *httptest.Server) { s.EnableHTTP2, s.TLS = true, new(tls.Config) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, name, r.Proto)
				_, err := io.Copy(io.Discard, r.Body)
				assert.NoError(t, err)
				for range 2 {
					<-time.After(2 * shortPatience)
					assert.NoError(t, r.Context().Err())
					_, err := io.WriteString(w, "part ")
					assert.NoError(t, err)
					assert.NoError(t, http.NewResponseController(w).Flush())
				}
			}, option)
			got, err := post(t, s, strings.NewReader("x"))
			require.NoError(t, err)
			assert.Equal(t, "part part ", got)
		})
	}
}

// A server without a WriteTimeout has other handlers on the same connection.
func TestADeadlineEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	guarded := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a") }), shortPatience)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/guarded" {
			guarded.ServeHTTP(w, r)
			return
		}
		<-time.After(2 * shortPatience)
		_, _ = io.WriteString(w, "b")
	}))
	t.Cleanup(s.Close)
	c := dial(t, s, "GET /guarded HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(c)
	for _, want := range []string{"a", "b"} {
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want, string(b))
	}
}

func TestANewServerHasAllTimeouts(t *testing.T) {
	t.Parallel()
	s := New(http.NotFoundHandler())
	for _, d := range []time.Duration{s.ReadHeaderTimeout, s.WriteTimeout, s.IdleTimeout} {
		assert.Positive(t, d)
	}
	assert.Positive(t, s.MaxHeaderBytes)
	require.NoError(t, s.Shutdown(context.Background()))
}
