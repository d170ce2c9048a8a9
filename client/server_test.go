package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account    = "acc 1"                            // has to be escaped
	fakeSecret = "ab00000000000000000000000000012c" // an example of docs/protocol.md 1
	fakeHash   = "427e1637b3abbdf434a0034e6a55d5c809e30fc6d1ac11e701a537a346ca7f"
)

// request is a request that a server received.
type request struct {
	Method, URI string
	Header      http.Header
	Body        string
}

// rawServer is a manager whose answers a test writes, as docs/protocol.md defines
// them.
type rawServer struct {
	*httptest.Server
	conns atomic.Int64  // connections made
	gone  chan struct{} // a value for each connection that ended, the first few

	mu   sync.Mutex
	seen []request
}

// serve starts a server that records every request and calls answer with its
// number, from 1.
func serve(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, n int)) *rawServer {
	t.Helper()
	s := newRawServer(answer)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func newRawServer(answer func(w http.ResponseWriter, r *http.Request, n int)) *rawServer {
	s := &rawServer{gone: make(chan struct{}, 16)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, request{r.Method, r.RequestURI, r.Header.Clone(), string(body)})
		n := len(s.seen)
		s.mu.Unlock()
		answer(w, r, n)
	}))
	s.Config.ErrorLog = quiet()
	s.Config.ConnState = s.count
	return s
}

func (s *rawServer) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed:
		select {
		case s.gone <- struct{}{}:
		default:
		}
	}
}

func (s *rawServer) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.seen...)
}

// always gives every request the same answer.
func always(status int, body string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) { answer(w, status, body) }
}

func answer(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// breakOff sends half of a body and closes the connection.
func breakOff(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, body)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// fast has pauses that do not slow down a test.
var fast = client.Retries{Attempts: 3, MinWait: time.Millisecond, MaxWait: 2 * time.Millisecond}

func connect(t testing.TB, url string, opts ...client.Option) *client.HTTP {
	t.Helper()
	return connectAs(t, url, fakeSecret, opts...)
}

func connectAs(t testing.TB, url, secret string, opts ...client.Option) *client.HTTP {
	t.Helper()
	c, err := client.New(url, account, secret, append([]client.Option{client.WithRetries(fast)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// within returns a context with a time limit for a test that hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// assertToken checks that a request carries a token of the test's account.
func assertToken(t testing.TB, r request) {
	t.Helper()
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	const scheme = "Delegate "
	auth := r.Header.Get("Authorization")
	require.Greater(t, len(auth), len(scheme))
	require.Equal(t, scheme, auth[:len(scheme)])
	claims, err := secret.Verify(auth[len(scheme):], time.Now())
	require.NoError(t, err)
	assert.Equal(t, account, claims.Account)
}
