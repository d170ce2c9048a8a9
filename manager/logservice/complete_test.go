package logservice_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/logservice"
)

// One PUT opens, writes, completes and archives a log, also if it is repeated.
func TestOnePutCompletesALog(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const key = "?accountID=acc&key=k"
	put := func(next, body string) int {
		code, _ := b.do("PUT", "/stream"+key, body, logheader.Writer, "w", logheader.Resume, next, logheader.Complete, "true")
		return code
	}
	for range 2 {
		assert.Equal(t, http.StatusNoContent, put("0", lines(0, "one\n", "two\n")))
		assert.Equal(t, []string{"one\n", "two\n"}, outs(t, b.ok("GET", "/blob"+key, "")))
		assert.Contains(t, b.ok("GET", "/stream"+key, ""), "event: eof", "the stream is complete")
	}
	assert.Equal(t, http.StatusConflict, put("3", "[]"), "the service has no third line")
	assert.Equal(t, http.StatusNoContent, put("2", "[]"))
}

// A log without lines gets an archive too: readers get an empty log also when its stream is
// gone.
func TestAnEmptyLogIsCompleted(t *testing.T) {
	t.Parallel()
	var streams livelog.Streams
	b := setUp(t, func(c *logservice.Config) {
		if c.Streams == nil {
			c.Streams = logservice.NewStreams()
		}
		streams = c.Streams
	})
	s := logger.OpenStream(t.Context(), logger.StreamConfig{URL: b.http.URL, Token: token, Account: "acc", Key: "k"})
	require.NoError(t, s.Close(t.Context()))
	st, err := streams.State(t.Context(), livelog.ID{Account: "acc", Key: "k"})
	require.NoError(t, err)
	assert.False(t, st.Open)
	b.now.Store(int64(24 * time.Hour))
	b.ok("POST", "/stream?accountID=acc&key=another", "")
	require.Eventually(t, func() bool {
		_, err := streams.State(t.Context(), livelog.ID{Account: "acc", Key: "k"})
		return errors.Is(err, livelog.ErrUnknown)
	}, time.Minute, time.Millisecond)
	assert.Empty(t, b.ok("GET", "/blob?accountID=acc&key=k", ""))
}

// A log that begins again with another writer replaces the earlier one.
func TestOnePutBeginsALogAnew(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, out := range []string{"first\n", "second\n"} {
		b.ok("PUT", "/stream?accountID=acc&key=k", lines(0, out), logheader.Writer, out[:1], logheader.Resume, "0", logheader.Complete, "true")
		assert.Equal(t, []string{out}, outs(t, b.ok("GET", "/blob?accountID=acc&key=k", "")))
	}
}
