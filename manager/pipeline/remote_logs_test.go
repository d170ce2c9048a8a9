package pipeline

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// liveLog is a log service with a log that has no end.
type liveLog struct{ lines int }

func (l liveLog) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"error_msg":"the log is not complete"}`)),
	}
	if strings.HasSuffix(r.URL.Path, "/stream") {
		resp.StatusCode = http.StatusOK
		resp.Header.Set("Content-Type", "text/event-stream")
		resp.Body = io.NopCloser(&liveLines{ctx: r.Context(), lines: l.lines})
	}
	return resp, nil
}

// liveLines returns a line for each call of Read, and then waits for the end of the request.
type liveLines struct {
	ctx         context.Context
	next, lines int
}

func (l *liveLines) Read(p []byte) (int, error) {
	if l.next == l.lines {
		<-l.ctx.Done()
	}
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	l.next++
	return copy(p, fmt.Sprintf("id: %d\ndata: {\"pos\":%[1]d,\"out\":\"text\"}\n\n", l.next-1)), nil
}

// A client that reads the logs of a run slowly gets all lines of a log without an end.
func TestALogWithoutAnEndWaitsForASlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRemote(RemoteConfig{
			URLs: []string{"http://manager.test"}, Accounts: map[string]string{"acme": "00000000000000000000000000000001"}, Transport: liveLog{lines: 3},
		})
		require.NoError(t, err)
		defer r.Close()
		lines := 0
		for _, err := range r.Lines(t.Context(), "acme", "r.build/test", 0, false) {
			require.NoError(t, err)
			lines++
			<-time.After(2 * logSilence) // of the test's own clock
		}
		assert.Equal(t, 3, lines)
	})
}
