package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
)

// pauses makes a call to a manager that answers 503, and returns the pauses
// between the attempts. Time is simulated.
func pauses(t *testing.T, r client.Retries, retryAfter func(now time.Time) string) []time.Duration {
	t.Helper()
	var at []time.Duration
	start := time.Now()
	c, err := client.New("http://manager.invalid", account, fakeSecret, client.WithRetries(r),
		client.WithTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			at = append(at, time.Since(start))
			h := http.Header{}
			h.Set("Retry-After", retryAfter(time.Now()))
			return &http.Response{StatusCode: 503, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		})))
	require.NoError(t, err)
	_, err = c.Poll(context.Background(), "d", client.PollQuery{})
	require.ErrorIs(t, err, client.ErrRetryable)
	for i := len(at) - 1; i > 0; i-- {
		at[i] -= at[i-1]
	}
	return at[1:]
}

func never(time.Time) string { return "" }

// Rule C2: the pauses double from MinWait to MaxWait. A random factor shortens
// each by up to a half.
func TestBackOffIsExponentialWithJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := client.Retries{Attempts: 80, MinWait: time.Second, MaxWait: 10 * time.Second}
		got := pauses(t, r, never)
		require.Len(t, got, 79)
		different := map[time.Duration]bool{}
		for i, d := range got {
			whole := 10 * time.Second
			if i < 4 {
				whole = time.Second << i
			}
			assert.LessOrEqual(t, d, whole, "pause %d", i)
			assert.GreaterOrEqual(t, d, whole/2, "pause %d", i)
			different[d] = true
		}
		assert.Greater(t, len(different), 70, "jitter")
	})
}

// Rule C2: the defaults are those that Retries documents.
func TestDefaultRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := pauses(t, client.Retries{}, never)
		require.Len(t, got, 4)
		assert.InDelta(t, 150*time.Millisecond, got[0], float64(50*time.Millisecond))
		assert.InDelta(t, 1200*time.Millisecond, got[3], float64(400*time.Millisecond))
	})
}

// Rule C2: Retry-After applies in both forms, up to a limit. Invalid values and
// past dates do not change the back-off.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	r := client.Retries{Attempts: 2, MinWait: 10 * time.Millisecond, MaxWait: 20 * time.Millisecond, MaxRetryAfter: 30 * time.Second}
	for name, tc := range map[string]struct {
		header   func(time.Time) string
		min, max time.Duration
	}{
		"seconds":  {func(time.Time) string { return "7" }, 7 * time.Second, 7 * time.Second},
		"a date":   {func(now time.Time) string { return now.Add(7 * time.Second).UTC().Format(http.TimeFormat) }, 6 * time.Second, 7 * time.Second},
		"too long": {func(time.Time) string { return "86400" }, 30 * time.Second, 30 * time.Second},
		"huge":     {func(time.Time) string { return "99999999999999999999" }, 5 * time.Millisecond, 10 * time.Millisecond},
		"the past": {func(now time.Time) string { return now.Add(-time.Hour).UTC().Format(http.TimeFormat) }, 5 * time.Millisecond, 10 * time.Millisecond},
		"negative": {func(time.Time) string { return "-7" }, 5 * time.Millisecond, 10 * time.Millisecond},
		"nonsense": {func(time.Time) string { return "soon" }, 5 * time.Millisecond, 10 * time.Millisecond},
		"zero":     {func(time.Time) string { return "0" }, 5 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := pauses(t, r, tc.header)
				require.Len(t, got, 1)
				assert.GreaterOrEqual(t, got[0], tc.min)
				assert.LessOrEqual(t, got[0], tc.max)
			})
		})
	}
}

// The error has the Retry-After for the caller.
func TestTheErrorCarriesRetryAfter(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Retry-After", "9")
		answer(w, 503, "draining\n")
	})
	err := connect(t, s.URL).Heartbeat(within(t), &client.Registration{DelegateID: "d"})
	var e *client.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 9*time.Second, e.RetryAfter)
	assert.Equal(t, "POST /api/agent/delegates/heartbeat-with-polling: 503 Service Unavailable: draining", err.Error())
}
