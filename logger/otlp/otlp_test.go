package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an OTLP collector.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	records  []*logs.LogRecord
	resource map[string]string
	requests int
	headers  []http.Header
	answer   func(n int) (status int, retryAfter string)
	hold     chan struct{} // answers wait for it, unless nil
	came     chan struct{} // one for each request
}

func receive(t *testing.T, answer func(n int) (int, string)) *receiver {
	t.Helper()
	r := &receiver{resource: map[string]string{}, answer: answer, came: make(chan struct{}, 1000)}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	raw, _ := io.ReadAll(body)
	c.mu.Lock()
	n, hold := c.requests, c.hold
	c.requests++
	c.headers = append(c.headers, r.Header.Clone())
	c.mu.Unlock()
	c.came <- struct{}{}
	if hold != nil {
		<-hold
	}
	if c.answer != nil {
		if status, after := c.answer(n); status != 200 {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(status)
			return
		}
	}
	var req collector.ExportLogsServiceRequest
	if r.URL.Path != "/v1/logs" || proto.Unmarshal(raw, &req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rl := range req.ResourceLogs {
		for _, a := range rl.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, sl := range rl.ScopeLogs {
			c.records = append(c.records, sl.LogRecords...)
		}
	}
	out, _ := proto.Marshal(&collector.ExportLogsServiceResponse{})
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

func (c *receiver) bodies() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		out = append(out, r.Body.GetStringValue())
	}
	return out
}

func open(t *testing.T, c *receiver, change func(*otlp.Config)) *otlp.Exporter {
	t.Helper()
	cfg := otlp.Config{Endpoint: c.URL + "/v1/logs", Interval: time.Millisecond, Attributes: map[string]string{"delegate": "d1"}}
	if change != nil {
		change(&cfg)
	}
	e, err := otlp.Open(t.Context(), cfg)
	require.NoError(t, err)
	return e
}

type mask struct{ old, repl string }

func (m mask) Mask(text string) string { return strings.ReplaceAll(text, m.old, m.repl) }

// Rules L1, S3: an event arrives with its level, labels and types, and masked.
func TestEventsArriveAsTheyAreButMasked(t *testing.T) {
	t.Parallel()
	c := receive(t, nil)
	e := open(t, c, nil)
	var out bytes.Buffer
	log, closer, err := logger.New(logger.Config{Output: &out, Mask: mask{"fake-secret", "******"}, Export: e, Level: "debug"})
	require.NoError(t, err)
	log = logger.Labels{Account: "a", Task: "t1"}.Apply(log)
	log.Warn().Int("n", 7).Float64("f", 1.5).Bool("b", true).Strs("list", []string{"x", "fake-secret"}).
		Err(errors.New("with fake-secret")).Msg("a fake-secret here")
	log.Debug().Msg("second")
	log.Trace().Msg("below the level")
	require.NoError(t, closer.Close())
	require.NoError(t, e.Close(t.Context()))

	assert.Equal(t, []string{"a ****** here", "second"}, c.bodies())
	r := c.records[0]
	assert.Equal(t, logs.SeverityNumber_SEVERITY_NUMBER_WARN, r.SeverityNumber)
	assert.Equal(t, "warn", r.SeverityText)
	assert.WithinDuration(t, time.Now(), time.Unix(0, int64(r.TimeUnixNano)), time.Minute)
	got := map[string]string{}
	for _, a := range r.Attributes {
		got[a.Key] = strings.ReplaceAll(a.Value.String(), " ", "")
	}
	assert.Equal(t, map[string]string{
		"account": `string_value:"a"`, "task": `string_value:"t1"`, "n": `int_value:7`, "f": `double_value:1.5`,
		"b": `bool_value:true`, "list": `string_value:"[\"x\",\"******\"]"`, "error": `string_value:"with******"`,
	}, got)
	assert.Equal(t, "dlite-delegate", c.resource["service.name"])
	assert.Equal(t, "d1", c.resource["delegate"])
	for _, l := range c.records {
		assert.NotContains(t, l.String(), "fake-secret")
	}
	assert.Equal(t, 2, strings.Count(out.String(), "\n"), "the rest of the log is as ever")
}

func TestAnEventThatMaskingBrokeArrivesAsText(t *testing.T) {
	t.Parallel()
	c := receive(t, nil)
	e := open(t, c, nil)
	_, err := e.Write([]byte("{\"level\":******\n"))
	require.NoError(t, err)
	require.NoError(t, e.Close(t.Context()))
	assert.Equal(t, []string{`{"level":******`}, c.bodies())
}

// The collector hangs: no writer waits, the queue is bounded, and dropped records are
// counted and told.
func TestACollectorThatHangsDoesNotDelayTheProgram(t *testing.T) {
	t.Parallel()
	c := receive(t, nil)
	c.hold = make(chan struct{})
	e := open(t, c, func(cfg *otlp.Config) { cfg.MaxQueue, cfg.Batch = 10, 1 })
	write := func() {
		_, err := e.Write([]byte(`{"level":"info","message":"m"}`))
		require.NoError(t, err)
	}
	write()
	<-c.came // it hangs
	for range 100 {
		write()
	}
	assert.EqualValues(t, 90, e.Dropped())
	close(c.hold)
	require.ErrorContains(t, e.Close(t.Context()), "90 log events were not exported: the queue was full")
	bodies := c.bodies()
	assert.Contains(t, bodies, "90 log events were not exported")
	assert.Len(t, bodies, 11+1)
	write()
	assert.EqualValues(t, 91, e.Dropped(), "after its end")
	require.NoError(t, e.Close(t.Context()))
}

// A collector that is overloaded gets the batch again when it wants it; one that
// refuses it does not.
func TestBatchesAreTriedAgain(t *testing.T) {
	t.Parallel()
	c := receive(t, func(n int) (int, string) {
		if n < 2 {
			return 503, "0"
		}
		return 200, ""
	})
	e := open(t, c, nil)
	_, _ = e.Write([]byte(`{"message":"again"}`))
	require.NoError(t, e.Close(t.Context()))
	assert.Equal(t, []string{"again"}, c.bodies())

	refusing := receive(t, func(int) (int, string) { return 400, "" })
	e = open(t, refusing, nil)
	_, _ = e.Write([]byte(`{"message":"no"}`))
	require.ErrorContains(t, e.Close(t.Context()), "1 log events were not exported")
	assert.Equal(t, 1, refusing.requests)
}

func TestCloseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := receive(t, nil)
	c.hold = make(chan struct{})
	defer close(c.hold)
	e := open(t, c, nil)
	_, _ = e.Write([]byte(`{"message":"m"}`))
	<-c.came
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, e.Close(ctx), "1 log events were not exported")
}

// The variables that OpenTelemetry defines.
func TestTheEnvironmentSaysWhere(t *testing.T) {
	c := receive(t, nil)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=fake-key")
	t.Setenv("OTEL_SERVICE_NAME", "by-environment")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	e, err := otlp.Open(t.Context(), otlp.Config{Service: "by-config"})
	require.NoError(t, err)
	_, _ = e.Write([]byte(`{"message":"m"}`))
	require.NoError(t, e.Close(t.Context()))
	assert.Equal(t, []string{"m"}, c.bodies())
	assert.Equal(t, "by-environment", c.resource["service.name"])
	assert.Equal(t, "fake-key", c.headers[0].Get("Api-Key"))
	assert.Equal(t, "gzip", c.headers[0].Get("Content-Encoding"))
}
