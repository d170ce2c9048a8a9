package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
)

// api calls a manager's API.
type apiCalls struct {
	name  string
	http  *http.Client
	url   string
	token string
}

// newAPI returns an api for a TCP address or a socket.
func newAPI(t *testing.T, network, address string) *apiCalls {
	s, err := token.ParseSecret(secret)
	require.NoError(t, err)
	text, err := s.Issue(account, time.Now(), 24*time.Hour)
	require.NoError(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &apiCalls{name: address, http: &http.Client{Transport: transport}, url: "http://manager", token: text}
}

// request starts a call. The caller closes the body of the answer.
func (a *apiCalls) request(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	q := r.URL.Query()
	q.Set("accountId", account)
	r.URL.RawQuery = q.Encode()
	return a.http.Do(r)
}

// call makes a call and decodes the answer if its status is below 300.
func (a *apiCalls) call(ctx context.Context, method, path string, body, into any) (int, error) {
	resp, err := a.request(ctx, method, path, body)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, bytes.TrimSpace(b))
	}
	if into != nil {
		err = json.Unmarshal(b, into)
	}
	return resp.StatusCode, err
}

// insist repeats a call until a manager answers that is able to execute it.
func (a *apiCalls) insist(ctx context.Context, method, path string, body, into any) (status, calls int, err error) {
	for {
		calls++
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err = a.call(once, method, path, body, into)
		cancel()
		if status > 0 && status < 500 || ctx.Err() != nil {
			return status, calls, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// pause waits, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
