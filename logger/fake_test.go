package logger_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
)

// call is a request that arrived.
type call struct {
	op, token, key, account, rawQuery string
	header                            http.Header
	length                            int64
	body                              []byte
}

// fake is a log service that records every call. fail returns the status for call
// n of an operation, from 0. Zero means success.
type fake struct {
	*httptest.Server

	mu     sync.Mutex
	calls  []call
	counts map[string]int
	seen   chan struct{} // one for each call, as long as there is room
	fail   func(w http.ResponseWriter, op string, n int) int
	link   string // the target of links; empty for the fake itself
}

func newFake(t *testing.T, fail func(w http.ResponseWriter, op string, n int) int) *fake {
	t.Helper()
	f := &fake{counts: map[string]int{}, seen: make(chan struct{}, 10_000), fail: fail}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := r.URL.Query()
	op := r.Method + " " + r.URL.Path
	if q.Get("snapshot") == "true" {
		op += " snapshot"
	}
	f.mu.Lock()
	n := f.counts[op]
	f.counts[op]++
	f.calls = append(f.calls, call{
		op: op, token: r.Header.Get(logheader.Token), key: q.Get("key"), account: q.Get("accountID"),
		rawQuery: r.URL.RawQuery, length: r.ContentLength, body: body,
		header: r.Header,
	})
	f.mu.Unlock()
	select {
	case f.seen <- struct{}{}:
	default:
	}
	if f.fail != nil {
		if status := f.fail(w, op, n); status != 0 {
			http.Error(w, `{"error_msg":"on purpose"}`, status)
			return
		}
	}
	if r.URL.Path == "/blob/link/upload" {
		_ = json.NewEncoder(w).Encode(map[string]any{"link": cmp.Or(f.link, f.URL) + "/third/party?sig=1", "expires": int64(time.Hour)})
	}
}

// ops returns the operations in order. Repetitions count once.
func (f *fake) ops() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if len(out) == 0 || out[len(out)-1] != c.op {
			out = append(out, c.op)
		}
	}
	return out
}

func (f *fake) of(op string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []call
	for _, c := range f.calls {
		if c.op == op {
			out = append(out, c)
		}
	}
	return out
}

// live returns the lines of all PUTs.
func (f *fake) live(t *testing.T) []logger.Line {
	t.Helper()
	var out []logger.Line
	for _, c := range f.of("PUT /stream") {
		var ls []logger.Line
		if err := json.Unmarshal(c.body, &ls); err != nil {
			t.Fatalf("decoding %q: %v", c.body, err)
		}
		out = append(out, ls...)
	}
	return out
}

// archive returns the lines of a blob.
func archive(t *testing.T, body []byte) []logger.Line {
	t.Helper()
	var out []logger.Line
	for raw := range bytes.Lines(body) {
		var l logger.Line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("decoding %q: %v", raw, err)
		}
		out = append(out, l)
	}
	return out
}

func text(lines []logger.Line) string {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l.Out)
	}
	return b.String()
}

// await waits until n calls of an operation have arrived.
func (f *fake) await(t *testing.T, op string, n int) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for len(f.of(op)) < n {
		select {
		case <-f.seen:
		case <-timeout:
			t.Fatalf("timed out waiting for %d of %s; got %v", n, op, f.ops())
		}
	}
}
