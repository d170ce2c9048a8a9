package endtoend_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/logservice"
)

// If fullStorm is 1, TestLogsOutlastAStorm writes two million lines, and the log service is
// away for 30 s.
const fullStorm = "DLITE_TEST_LOGSTORM"

// Rule L2: ten steps write their logs to a faulty log service. It is slow, answers 500, closes
// connections in the middle of bodies and after them, is away for seconds, and restarts twice.
// Each archive is, byte for byte, the masked output of its step, with each line once and in
// order. So is a live stream. The delegate's memory stays small.
func TestLogsOutlastAStorm(t *testing.T) {
	t.Parallel()
	st := storm{Steps: 10, Lines: 5_000, Dir: t.TempDir()}
	away := 3 * time.Second
	if raceEnabled {
		st.Lines = 4_000
	}
	if os.Getenv(fullStorm) == "1" {
		st.Lines, away = 200_000, 30*time.Second
	}
	f := newFaults(t)
	st.URL = "http://" + f.addr

	answer := startStorm(t, st)
	f.await(t, int64(st.Steps*st.Lines)*100/8)
	f.restart(t, away)
	f.await(t, int64(st.Steps*st.Lines)*100/2)
	f.restart(t, 0)
	c := answer()

	assert.Empty(t, c.Lost)
	for i := range st.Steps {
		want := sha256.New()
		var line []byte
		for n := range st.Lines {
			line = stormLine(line[:0], i, n, stormMask)
			if n == st.Lines-1 {
				line = bytes.TrimSuffix(line, []byte("\n"))
			}
			_, _ = want.Write(line)
		}
		archive := readStormLog(t, f, "/blob", i, st.Lines)
		assert.Equal(t, want.Sum(nil), archive, "the archive of step %d", i)
		if i < 2 {
			assert.Equal(t, want.Sum(nil), readStormLog(t, f, "/stream", i, st.Lines), "the live stream of step %d", i)
		}
	}
	for name, n := range f.counts() {
		assert.Positive(t, n, name)
	}
	const limit = 64 << 20
	assert.Less(t, c.PeakMemory-c.IdleMemory, int64(limit))
	if c.PeakResident > 0 && !raceEnabled { // the race detector needs memory too
		assert.Less(t, c.PeakResident-c.IdleResident, int64(limit))
	}
	t.Logf("%d steps of %d lines in %v; memory %+.1f MiB, resident %+.1f MiB over idle; faults: %v", st.Steps, st.Lines,
		c.Took.Round(time.Millisecond), float64(c.PeakMemory-c.IdleMemory)/(1<<20),
		float64(c.PeakResident-c.IdleResident)/(1<<20), f.counts())
}

// startStorm runs the steps in another process.
func startStorm(t *testing.T, st storm) (answer func() calm) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(st)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), stormEnv+"="+string(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	require.NoError(t, cmd.Start())
	wait := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = wait() })
	return func() (c calm) {
		require.NoError(t, wait())
		require.NoError(t, json.Unmarshal(out.Bytes(), &c))
		return c
	}
}

// readStormLog returns the checksum of a log's text. Each line must have its number as pos.
func readStormLog(t *testing.T, f *faults, path string, step, lines int) []byte {
	t.Helper()
	rec := &lineSum{hash: sha256.New(), t: t}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		path+"?"+url.Values{"accountID": {"acc"}, "key": {stormKey(step)}}.Encode(), nil)
	req.Header.Set(logheader.Token, stormToken)
	r, w := io.Pipe()
	go func() {
		f.logs.Load().ServeHTTP(pipeResponse{w, http.Header{}}, req)
		_ = w.Close()
	}()
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		text := strings.TrimPrefix(scan.Text(), "data: ")
		if strings.HasPrefix(text, "{") {
			rec.line(text)
		}
	}
	require.NoError(t, scan.Err())
	require.Equal(t, lines, rec.n, "lines of step %d at %s", step, path)
	return rec.hash.Sum(nil)
}

type pipeResponse struct {
	io.Writer
	header http.Header
}

func (p pipeResponse) Header() http.Header { return p.header }
func (p pipeResponse) WriteHeader(int)     {}
func (p pipeResponse) Flush()              {}

type lineSum struct {
	t    *testing.T
	hash hash.Hash
	n    int
}

func (s *lineSum) line(text string) {
	var l logger.Line
	// The lines are compared without assert, because there are millions of them.
	if err := json.Unmarshal([]byte(text), &l); err != nil || l.Pos != int64(s.n) {
		s.t.Fatalf("line %d is %q: %v", s.n, text, err)
	}
	_, _ = io.WriteString(s.hash, l.Out)
	s.n++
}

// faults is a durable log service that fails often.
type faults struct {
	addr string
	dir  string
	logs atomic.Pointer[logservice.Server]
	srv  *http.Server
	done chan struct{} // closed when srv has ended

	mu    sync.Mutex // guards the fields below
	n     int        // number of requests
	taken int64      // bytes of lines
	moved chan struct{}
	count map[string]int
}

const (
	failed    = "answers 500"
	torn      = "connections closed in the middle of a body"
	unheard   = "connections closed in place of an answer"
	slow      = "slow requests"
	restarted = "restarts"
)

func newFaults(t *testing.T) *faults {
	t.Helper()
	f := &faults{
		addr: "127.0.0.1:0", dir: t.TempDir(), moved: make(chan struct{}),
		count: map[string]int{failed: 0, torn: 0, unheard: 0, slow: 0, restarted: 0},
	}
	f.start(t)
	t.Cleanup(f.stop)
	return f
}

func (f *faults) start(t *testing.T) {
	t.Helper()
	logs, err := logservice.New(logservice.Config{
		Dir: f.dir, Authorize: logservice.Tokens(map[string]string{"acc": stormToken}),
	})
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", f.addr)
	require.NoError(t, err)
	f.addr = l.Addr().String()
	f.logs.Store(logs)
	f.srv, f.done = &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	go func(srv *http.Server, done chan struct{}) {
		defer close(done)
		_ = srv.Serve(l)
	}(f.srv, f.done)
}

// stop ends the service during any requests.
func (f *faults) stop() {
	_ = f.srv.Close()
	<-f.done
	_ = f.logs.Load().Close()
}

// restart ends the service and starts it again after a while.
func (f *faults) restart(t *testing.T, away time.Duration) {
	t.Helper()
	f.stop()
	back := time.NewTimer(away)
	defer back.Stop()
	<-back.C
	f.start(t)
	f.note(restarted)
}

// await waits until the service has taken a number of bytes of lines.
func (f *faults) await(t *testing.T, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		f.mu.Lock()
		taken, moved := f.taken, f.moved
		f.mu.Unlock()
		if taken >= size {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			t.Fatalf("timed out waiting for %d bytes; the log service got %d", size, taken)
		}
	}
}

func (f *faults) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[what]++
}

func (f *faults) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// ServeHTTP fails or delays four of ten requests, of any kind.
func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	n := f.n
	f.n++
	f.mu.Unlock()
	logs := f.logs.Load()
	switch n % 10 {
	case 2:
		f.note(failed)
		http.Error(w, `{"error_msg":"on purpose"}`, http.StatusInternalServerError)
		return
	case 4:
		if r.ContentLength > 1 {
			f.note(torn)
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(r.Body, r.ContentLength/2), brokenReader{}), r.Body}
			logs.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
	case 6:
		if r.Method != http.MethodGet {
			f.note(unheard)
			f.serve(logs, httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
	case 8:
		f.note(slow)
		r.Body = struct {
			io.Reader
			io.Closer
		}{slowReader{r.Body, max(1, r.ContentLength/20)}, r.Body}
	}
	f.serve(logs, w, r)
}

func (f *faults) serve(logs *logservice.Server, w http.ResponseWriter, r *http.Request) {
	logs.ServeHTTP(w, r)
	if r.Method == http.MethodPut && r.URL.Path == "/stream" {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.taken += r.ContentLength
		close(f.moved)
		f.moved = make(chan struct{})
	}
}

// brokenReader is the body of a broken connection.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// slowReader reads a body in pieces of limited size, each of which takes 10 ms.
type slowReader struct {
	io.Reader
	piece int64
}

func (s slowReader) Read(p []byte) (int, error) {
	t := time.NewTimer(10 * time.Millisecond)
	defer t.Stop()
	<-t.C
	return s.Reader.Read(p[:min(int64(len(p)), s.piece)])
}
