package logservice_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/logservice"
)

// follow reads events one by one.
func (b *bench) follow(pathAndQuery string, header ...string) (next func() string, closeIt func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.http.URL+pathAndQuery, nil)
	require.NoError(b.t, err)
	req.Header.Set("X-Harness-Token", token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.http.Client().Do(req) //nolint:bodyclose // closeIt does
	require.NoError(b.t, err)
	require.Equal(b.t, 200, resp.StatusCode)
	require.Equal(b.t, "text/event-stream", resp.Header.Get("Content-Type"))
	r := bufio.NewReader(resp.Body)
	next = func() string {
		var event []string
		for {
			l, err := r.ReadString('\n')
			if err != nil {
				return "broken off"
			}
			if l = strings.TrimSuffix(l, "\n"); l == "" {
				return strings.Join(event, "|")
			}
			event = append(event, l)
		}
	}
	return next, func() { _ = resp.Body.Close(); cancel() }
}

func TestReadersFollowFromAnyPlace(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.PingInterval = time.Hour })
	b.ok("POST", "/stream"+query, "")
	all, closeAll := b.follow("/stream" + query)
	defer closeAll()
	b.ok("PUT", "/stream"+query, lines(0, "a\n", "b\n"))
	assert.Contains(t, all(), `"out":"a\n"`)
	assert.Contains(t, all(), `"out":"b\n"`)

	from, closeFrom := b.follow("/stream" + query + "&from=1")
	defer closeFrom()
	assert.Regexp(t, `^id: 1\|data: .*"out":"b\\n"`, from())
	again, closeAgain := b.follow("/stream"+query, "Last-Event-ID", "1")
	defer closeAgain()

	b.ok("PUT", "/stream"+query, lines(2, "c\n"))
	b.ok("DELETE", "/stream"+query, "")
	for _, next := range []func() string{all, from, again} {
		assert.Regexp(t, `^id: 2\|data: .*"out":"c\\n"`, next())
		assert.Equal(t, "event: eof|data: eof", next())
		assert.Equal(t, "broken off", next(), "the answer ends after eof")
	}
	assert.Equal(t, []string{"b\n", "c\n"}, events(t, b.ok("GET", "/stream"+query+"&from=1", "")))
}

func TestSilentStreamsPing(t *testing.T) {
	t.Parallel()
	b := setUp(t, func(c *logservice.Config) { c.PingInterval = time.Millisecond })
	b.ok("POST", "/stream"+query, "")
	next, closeIt := b.follow("/stream" + query)
	defer closeIt()
	assert.Equal(t, ": ping", next())
}

func TestCloseBreaksReadersOff(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("PUT", "/stream"+query, lines(0, "a\n"))
	next, closeIt := b.follow("/stream" + query)
	defer closeIt()
	assert.Contains(t, next(), "a")
	require.NoError(t, b.logs.Close())
	assert.Equal(t, "broken off", next(), "an eof would say that the log is complete")
	status, _ := b.do("POST", "/stream"+query, "")
	assert.Equal(t, 503, status)
	require.NoError(t, b.logs.Close())
}
