package client_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
)

// New refuses invalid settings, and the message says what to do.
func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	const good = "https://manager.example"
	own := client.WithTransport(http.DefaultTransport)
	for name, tc := range map[string]struct {
		endpoint, account, secret string
		opts                      []client.Option
		want                      string
	}{
		"no scheme":           {"manager.example", account, fakeSecret, nil, "must begin with http:// or https://"},
		"another scheme":      {"ftp://manager.example", account, fakeSecret, nil, "must begin with http:// or https://"},
		"no host":             {"https:///x", account, fakeSecret, nil, "has no host"},
		"port alone":          {"https://:80", account, fakeSecret, nil, "has no host"},
		"no URL":              {"https://fake-password\x7f@x", account, fakeSecret, nil, "not a URL"},
		"credentials":         {"https://u:fake-password@x", account, fakeSecret, nil, "contains a user or password"},
		"query":               {"https://x/?a=b", account, fakeSecret, nil, "a query or a fragment"},
		"fragment":            {"https://x/#a", account, fakeSecret, nil, "a query or a fragment"},
		"no account":          {good, "", fakeSecret, nil, "the account id is empty"},
		"no secret":           {good, account, "", nil, "the account secret is empty"},
		"bad secret":          {good, account, "fake-password", nil, "32 hexadecimal characters"},
		"secret and token":    {good, account, fakeSecret, []client.Option{client.WithToken("x")}, "exclude each other"},
		"empty token":         {good, account, "", []client.Option{client.WithToken(" ")}, "token is empty"},
		"token of two lines":  {good, account, "", []client.Option{client.WithToken("fake-password\nx")}, "not valid in a header"},
		"protocol":            {good, account, fakeSecret, []client.Option{client.WithProtocol(3)}, "unknown protocol 3"},
		"time-out":            {good, account, fakeSecret, []client.Option{client.WithTimeout(0)}, "above zero"},
		"body limit":          {good, account, fakeSecret, []client.Option{client.WithMaxBody(-1)}, "above zero"},
		"attempts":            {good, account, fakeSecret, []client.Option{client.WithRetries(client.Retries{Attempts: -1})}, "negative"},
		"pauses":              {good, account, fakeSecret, []client.Option{client.WithRetries(client.Retries{MinWait: 2, MaxWait: 1})}, "is below MinWait"},
		"transport and TLS":   {good, account, fakeSecret, []client.Option{own, client.WithInsecureSkipVerify()}, "custom transport excludes"},
		"transport and proxy": {good, account, fakeSecret, []client.Option{own, client.WithProxy(client.ProxyConfig{Host: "p"})}, "custom transport excludes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := client.New(tc.endpoint, tc.account, tc.secret, tc.opts...)
			require.ErrorContains(t, err, "making a manager client: ")
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "fake-password")
			assert.Nil(t, c)
		})
	}
}

// A base URL may carry a path prefix, also one with escapes.
func TestTheEndpointMayHaveAPath(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"": "", "/": "", "/a/b//": "/a/b", "/a%2Fb": "/a%2Fb", "/ä": "/%C3%A4"} {
		s := serve(t, always(200, `{}`))
		_, err := connect(t, " "+s.URL+prefix+" ").Poll(within(t), "d", client.PollQuery{})
		require.NoError(t, err)
		assert.Equal(t, want+"/api/agent/delegates/d/task-events?accountId=acc+1", s.requests()[0].URI)
	}
}

// The client logs a retry at debug level, without credentials.
func TestRetriesAreLogged(t *testing.T) {
	t.Parallel()
	s := serve(t, always(503, ""))
	var log bytes.Buffer
	_, err := connect(t, s.URL, client.WithLogger(zerolog.New(&log))).Poll(within(t), "d", client.PollQuery{})
	require.Error(t, err)
	assert.Equal(t, 2, bytes.Count(log.Bytes(), []byte(`"level":"debug"`)))
	assert.Contains(t, log.String(), `"status":503`)
	assert.NotContains(t, log.String(), fakeSecret)
	assert.NotContains(t, log.String(), "accountId")
}

// Concurrent calls share tokens, buffers and names. The race detector checks them.
func TestTheClientIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n%7 == 0 {
			answer(w, 401, "")
			return
		}
		answer(w, 200, `{"resource":{"delegateId":"d"},"id":"t","type":"A","data":{"n":1}}`)
	})
	c := connect(t, s.URL)
	ctx := within(t)
	done := make(chan error)
	const parallel = 16
	for range parallel {
		go func() {
			for range 20 {
				if _, err := c.Register(ctx, &client.Registration{DelegateName: "n"}); err != nil && !isUnauthorized(err) {
					done <- err
					return
				}
				got, err := c.Acquire(ctx, "d", event)
				if err != nil && !isUnauthorized(err) {
					done <- err
					return
				}
				if err == nil && string(got.Data) != `{"n":1}` {
					done <- assert.AnError // a buffer was shared
					return
				}
			}
			done <- nil
		}()
	}
	for range parallel {
		select {
		case err := <-done:
			assert.NoError(t, err)
		case <-time.After(20 * time.Second):
			t.Fatal("hangs")
		}
	}
}
