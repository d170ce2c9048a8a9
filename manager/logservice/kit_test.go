package logservice_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/redis"
)

// bench is a server and a plain HTTP client.
type bench struct {
	t    *testing.T
	logs *logservice.Server
	http *httptest.Server
	now  atomic.Int64 // added to the clock
}

func setUp(t *testing.T, change ...func(*logservice.Config)) *bench {
	t.Helper()
	b := &bench{t: t}
	cfg := logservice.Config{
		Authorize: logservice.Tokens(map[string]string{"acc": token, "other": "fake-other"}),
		Now:       func() time.Time { return time.Now().Add(time.Duration(b.now.Load())) },
	}
	if os.Getenv(inFiles) != "" {
		cfg.Dir = t.TempDir()
	}
	if url := os.Getenv(inRedis); url != "" {
		streams, err := redis.OpenStreams(t.Context(), redis.Config{URL: url, Prefix: rand.Text()})
		require.NoError(t, err)
		cfg.Streams, cfg.Archive, cfg.Key = streams, "file://"+filepath.ToSlash(t.TempDir()), make([]byte, 32)
	}
	for _, c := range change {
		c(&cfg)
	}
	logs, err := logservice.New(cfg)
	require.NoError(t, err)
	b.logs = logs
	b.http = httptest.NewServer(b.logs)
	t.Cleanup(func() {
		assert.NoError(t, b.logs.Close())
		b.http.Close()
	})
	return b
}

// do sends a request without a Content-Type. It returns the status and the body.
func (b *bench) do(method, pathAndQuery, body string, header ...string) (int, string) {
	b.t.Helper()
	url := pathAndQuery
	if strings.HasPrefix(url, "/") {
		url = b.http.URL + pathAndQuery
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, url, strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("X-Harness-Token", token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.http.Client().Do(req)
	require.NoError(b.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, string(text)
}

func (b *bench) ok(method, pathAndQuery, body string, header ...string) string {
	b.t.Helper()
	status, text := b.do(method, pathAndQuery, body, header...)
	require.True(b.t, status >= 200 && status < 300, "%s %s: %d %s", method, pathAndQuery, status, text)
	return text
}

// lines returns the body of a PUT. The first line has pos first.
func lines(first int, outs ...string) string {
	var b strings.Builder
	for i, out := range outs {
		fmt.Fprintf(&b, `,{"level":"info","pos":%d,"out":%q,"time":"2024-05-06T07:08:09.123456789Z","args":null}`, first+i, out)
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]"
}

// outs returns the texts of newline-delimited lines.
func outs(t *testing.T, blob string) (texts []string) {
	t.Helper()
	for raw := range strings.Lines(blob) {
		var l struct{ Out string }
		require.NoError(t, json.Unmarshal([]byte(raw), &l), raw)
		texts = append(texts, l.Out)
	}
	return texts
}

// events returns the lines of a complete event stream. Its last event must be eof.
func events(t *testing.T, body string) (texts []string) {
	t.Helper()
	body, ok := strings.CutSuffix(body, "event: eof\ndata: eof\n\n")
	require.True(t, ok, "no eof in %q", body)
	for l := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(l, "data: "); ok {
			texts = append(texts, outs(t, data)...)
		}
	}
	return texts
}
