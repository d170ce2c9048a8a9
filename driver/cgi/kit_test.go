//go:build unix

package cgi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is an HTTP server for the files of tests. It counts requests.
type store struct {
	*httptest.Server
	calls atomic.Int32
	mu    sync.Mutex
	files map[string][]byte // guarded by mu
}

func newStore(tb testing.TB) *store {
	tb.Helper()
	s := &store{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		s.mu.Lock()
		b, ok := s.files[r.URL.Path]
		s.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	}))
	tb.Cleanup(s.Close)
	return s
}

// put serves b and returns its URL.
func (s *store) put(b []byte) string {
	sum := sha256.Sum256(b)
	path := "/" + hex.EncodeToString(sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = b
	return s.URL + path
}

// logs are the logs of tasks, in memory.
type logs struct {
	mu    sync.Mutex
	b     bytes.Buffer // guarded by mu
	wrote chan struct{}
}

func (l *logs) open(context.Context, logger.StreamConfig) logger.TaskLog { return l }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *logs) Close(context.Context) error { return nil }

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// waitFor returns when the log contains s.
func (l *logs) waitFor(t *testing.T, s string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for !strings.Contains(l.String(), s) {
		select {
		case <-l.wrote:
		case <-timeout:
			t.Errorf("the log does not contain %q: %q", s, l.String())
			return
		}
	}
}

// rig is a handler with its cache, store and logs.
type rig struct {
	tb    testing.TB
	h     *cgi.Handler
	store *store
	logs  *logs
	cache string
}

func newRig(tb testing.TB, change ...func(*cgi.Config)) *rig {
	tb.Helper()
	r := &rig{tb: tb, store: newStore(tb), logs: &logs{wrote: make(chan struct{}, 1)}}
	r.cache = filepath.Join(tb.TempDir(), "cache")
	cfg := cgi.Config{Cache: r.cache, OpenLog: r.logs.open}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	r.h, err = cgi.New(cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(tb, r.h.Close(ctx))
	})
	return r
}

// wire is the config of a task.
type wire struct {
	Executable *wireExecutable   `json:"executable_config,omitempty"`
	Repository map[string]string `json:"repository,omitempty"`
	Method     string            `json:"method,omitempty"`
	Endpoint   string            `json:"endpoint,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Envs       []string          `json:"envs,omitempty"`
}

type wireExecutable struct {
	Name        string             `json:"name"`
	Version     string             `json:"version"`
	Executables []stage.Executable `json:"executables"`
	Compressed  bool               `json:"compressed,omitempty"`
}

// program returns the config of a program in the store.
func (r *rig) program(b []byte) *wire {
	sum := sha256.Sum256(b)
	return &wire{Executable: &wireExecutable{Name: "test", Version: "1", Executables: []stage.Executable{
		{OS: "plan9", Arch: "mips", URL: "http://127.0.0.1:1/none"},
		{OS: runtime.GOOS, Arch: runtime.GOARCH, URL: r.store.put(b), SHA256: hex.EncodeToString(sum[:])},
	}}}
}

// script returns the config of a shell script.
func (r *rig) script(text string) *wire { return r.program([]byte("#!/bin/sh\n" + text + "\n")) }

func (r *rig) task(w *wire, data string) *task.Task {
	r.tb.Helper()
	t := &task.Task{ID: "t1", Type: "custom"}
	if data != "" {
		t.Data = json.RawMessage(data)
	}
	if w != nil {
		var err error
		t.Config, err = json.Marshal(w)
		require.NoError(r.tb, err)
	}
	return t
}

// call runs a task like a poller.
func (r *rig) call(ctx context.Context, w *wire, data string) *task.Response {
	r.tb.Helper()
	resp, stack := task.Serve(ctx, r.h, r.task(w, data))
	require.Empty(r.tb, string(stack))
	return resp
}

// answer runs a task that must succeed.
func (r *rig) answer(w *wire, data string) *cgi.Answer {
	r.tb.Helper()
	resp := r.call(context.Background(), w, data)
	require.Equal(r.tb, task.OK, resp.Code, resp.Error)
	a := &cgi.Answer{}
	require.NoError(r.tb, json.Unmarshal(resp.Data, a))
	return a
}

// guard is a named pipe that a program and its child processes hold open.
type guard struct {
	path string
	r    *os.File
}

func newGuard(t *testing.T) *guard {
	t.Helper()
	g := &guard{path: filepath.Join(t.TempDir(), "guard")}
	require.NoError(t, syscall.Mkfifo(g.path, 0o600))
	var err error
	g.r, err = os.OpenFile(g.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.r.Close() })
	return g
}

// requireGone waits until no process holds the pipe.
func (g *guard) requireGone(t *testing.T) {
	t.Helper()
	require.NoError(t, g.r.SetReadDeadline(time.Now().Add(30*time.Second)))
	for {
		_, err := g.r.Read(make([]byte, 1<<10))
		if err == nil {
			continue
		}
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "a process is left")
		return
	}
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
