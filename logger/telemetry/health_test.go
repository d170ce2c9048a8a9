package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger/telemetry"
)

// get calls a handler.
func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func check(name string, err error) telemetry.Check {
	return telemetry.Check{Name: name, Run: func(context.Context) error { return err }}
}

// Rule L3: the body has the failed check and its reason. Liveness and readiness
// have separate checks.
func TestHealthReportsTheReason(t *testing.T) {
	t.Parallel()
	h := telemetry.Handler(prometheus.NewRegistry(),
		telemetry.Checks{check("loops", nil)},
		telemetry.Checks{check("manager", nil), check("draining", errors.New("no new stages"))})
	status, body := get(t, h, "/healthz")
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"status":"ok","checks":[{"name":"loops","ok":true}]}`, body)
	status, body = get(t, h, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.JSONEq(t, `{"status":"failing","checks":[
		{"name":"manager","ok":true},{"name":"draining","ok":false,"reason":"no new stages"}]}`, body)
	status, _ = get(t, h, "/other")
	assert.Equal(t, http.StatusNotFound, status)
}

// Rule L3: without checks the answer is ok.
func TestAServerWithoutChecksIsHealthy(t *testing.T) {
	t.Parallel()
	h := telemetry.Handler(prometheus.NewRegistry(), nil, nil)
	status, body := get(t, h, "/healthz")
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"status":"ok","checks":[]}`, body)
}

// Rule L3: a check that hangs has failed after two seconds for all callers, and
// hangs only once.
func TestACheckThatHangsHasFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int32
		release := make(chan struct{})
		h := telemetry.Handler(prometheus.NewRegistry(), telemetry.Checks{{Name: "stuck", Run: func(context.Context) error {
			started.Add(1)
			<-release
			return nil
		}}}, nil)
		for range 3 {
			begun := time.Now()
			status, body := get(t, h, "/healthz")
			assert.Equal(t, http.StatusServiceUnavailable, status)
			assert.Equal(t, 2*time.Second, time.Since(begun))
			var got struct{ Checks []struct{ Reason string } }
			require.NoError(t, json.Unmarshal([]byte(body), &got))
			assert.Equal(t, "the check did not answer within 2s", got.Checks[0].Reason)
		}
		assert.EqualValues(t, 1, started.Load())
		close(release)
		synctest.Wait()
		status, _ := get(t, h, "/healthz")
		assert.Equal(t, http.StatusOK, status)
		assert.EqualValues(t, 2, started.Load())
	})
}
