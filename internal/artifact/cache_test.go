//go:build unix

package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

// program is the content that the test servers serve.
var program = []byte("#!/bin/sh\necho plugin\n# " + strings.Repeat("0123456789abcdef", 4096) + "\n")

// store is a server that counts the requests.
type store struct {
	*httptest.Server
	calls atomic.Int32
}

func newStore(t *testing.T, handle func(call int, w http.ResponseWriter, r *http.Request)) *store {
	t.Helper()
	s := &store{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(int(s.calls.Add(1)), w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func serveBytes(b []byte) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
}

func (s *store) executable(served []byte) *stage.Executable {
	return &stage.Executable{URL: s.URL + "/plugin?token=not-for-logs", SHA256: checksum(served)}
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// impatient returns a cache without pauses between attempts.
func impatient(t *testing.T) *Cache {
	t.Helper()
	c := New(filepath.Join(t.TempDir(), "cache"), "plugin")
	c.pauses = []time.Duration{time.Millisecond, time.Millisecond}
	return c
}

func quiet(string, ...any) {}

// requireNoHit checks that the cache contains neither a program nor a part of one.
func requireNoHit(t *testing.T, c *Cache) {
	t.Helper()
	entries, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, strings.HasSuffix(e.Name(), ".lock"), "%s is left", e.Name())
	}
}

// Rule D4: a program is downloaded once, verified and executable.
func TestPluginIsFetchedOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t, serveBytes(program))
	c := impatient(t)
	exe := s.executable(program)
	for range 3 {
		file, err := c.Fetch(t.Context(), exe, "", quiet)
		require.NoError(t, err)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, program, b)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode())
		exe.SHA256 = strings.ToUpper(exe.SHA256)
	}
	require.EqualValues(t, 1, s.calls.Load())
}

func TestParallelStepsAndProcessesShareOneDownload(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(program[:100])
		_ = http.NewResponseController(w).Flush()
		<-time.After(200 * time.Millisecond) // time for all requests to arrive
		_, _ = w.Write(program[100:])
	})
	dir := impatient(t).dir
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if i%5 == 0 { // another process
				out, err := helper(t, dir, s.executable(program)).CombinedOutput()
				assert.NoError(t, err, string(out))
				return
			}
			file, err := New(dir, "plugin").Fetch(t.Context(), s.executable(program), "", quiet)
			if assert.NoError(t, err) {
				b, err := os.ReadFile(file)
				assert.NoError(t, err)
				assert.Equal(t, program, b)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, s.calls.Load())
}

// A partial download is repeated and never used.
func TestAPartialDownloadIsRepeatedAndNeverUsed(t *testing.T) {
	t.Parallel()
	truncated := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", strconv.Itoa(len(program)))
		_, _ = w.Write(program[:len(program)/2])
		panic(http.ErrAbortHandler)
	}
	s := newStore(t, func(call int, w http.ResponseWriter, _ *http.Request) {
		if call == 1 {
			truncated(w)
		}
		_, _ = w.Write(program)
	})
	var logged []string
	_, err := impatient(t).Fetch(t.Context(), s.executable(program), "", func(f string, args ...any) { logged = append(logged, fmt.Sprintf(f, args...)) })
	require.NoError(t, err)
	require.EqualValues(t, 2, s.calls.Load())
	require.Len(t, logged, 2)
	require.Contains(t, logged[1], "broke off")
	require.NotContains(t, strings.Join(logged, " "), "not-for-logs")

	s = newStore(t, func(_ int, w http.ResponseWriter, _ *http.Request) { truncated(w) })
	c := impatient(t)
	_, err = c.Fetch(t.Context(), s.executable(program), "", quiet)
	require.ErrorContains(t, err, "broke off")
	require.NotContains(t, err.Error(), "not-for-logs")
	require.EqualValues(t, 3, s.calls.Load())
	requireNoHit(t, c)
}

func TestOnlyTransientFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	for status, calls := range map[int]int32{500: 3, 503: 3, 429: 3, 408: 3, 404: 1, 403: 1, 400: 1, 204: 1} {
		s := newStore(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		c := impatient(t)
		_, err := c.Fetch(t.Context(), s.executable(program), "", quiet)
		require.ErrorContains(t, err, fmt.Sprintf("the server answers %d", status))
		require.Equal(t, calls, s.calls.Load(), status)
		requireNoHit(t, c)
	}
	s := newStore(t, func(call int, w http.ResponseWriter, _ *http.Request) {
		if call == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write(program)
	})
	_, err := impatient(t).Fetch(t.Context(), s.executable(program), "", quiet)
	require.NoError(t, err)
	s.Close()
	_, err = impatient(t).Fetch(t.Context(), s.executable(program), "", quiet)
	require.ErrorContains(t, err, "refused")
	require.NotContains(t, err.Error(), "not-for-logs")
}

func TestAWrongChecksumIsFinalAndNeverAHit(t *testing.T) {
	t.Parallel()
	// A broken archive must be verified before it is unpacked.
	for _, compressed := range []bool{false, true} {
		s := newStore(t, serveBytes([]byte("something else")))
		c := impatient(t)
		exe := s.executable(program)
		exe.Compressed = compressed
		for i := range int32(2) {
			_, err := c.Fetch(t.Context(), exe, "", quiet)
			require.ErrorContains(t, err, "the checksum is "+checksum([]byte("something else"))+" and should be "+checksum(program))
			require.NotContains(t, err.Error(), "decompress")
			require.Equal(t, i+1, s.calls.Load())
			requireNoHit(t, c)
		}
	}
}

func TestCompressedPluginsAreUnpackedAndBounded(t *testing.T) {
	t.Parallel()
	pack := func(b []byte) []byte {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		return z.EncodeAll(b, nil)
	}
	packed := pack(program)
	s := newStore(t, serveBytes(packed))
	c := impatient(t)
	exe := s.executable(packed)
	raw, err := c.Fetch(t.Context(), exe, "", quiet)
	require.NoError(t, err)
	exe.Compressed = true
	file, err := c.Fetch(t.Context(), exe, "", quiet)
	require.NoError(t, err)
	require.NotEqual(t, raw, file, "the same bytes may be a program themselves")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, program, b)

	bomb := pack(make([]byte, 10<<20))
	s = newStore(t, serveBytes(bomb))
	c = impatient(t)
	c.maxProgram = 1 << 20
	exe = s.executable(bomb)
	exe.Compressed = true
	_, err = c.Fetch(t.Context(), exe, "", quiet)
	require.ErrorContains(t, err, "more than 1048576 bytes")
	requireNoHit(t, c)

	s = newStore(t, serveBytes(packed[:len(packed)-10]))
	c = impatient(t)
	exe = s.executable(packed[:len(packed)-10])
	exe.Compressed = true
	_, err = c.Fetch(t.Context(), exe, "", quiet)
	require.ErrorContains(t, err, "decompress")
	requireNoHit(t, c)
}

func TestDownloadsAreBoundedInSizeAndTime(t *testing.T) {
	t.Parallel()
	endless := func(_ int, w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}
	announced := func(_ int, w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1048577") }
	for _, handle := range []func(int, http.ResponseWriter, *http.Request){endless, announced} {
		s := newStore(t, handle)
		c := impatient(t)
		c.maxServed = 1 << 20
		_, err := c.Fetch(t.Context(), s.executable(program), "", quiet)
		require.ErrorContains(t, err, "1048576")
		require.EqualValues(t, 1, s.calls.Load())
		requireNoHit(t, c)
	}
	// A slow download with progress succeeds. A download without progress fails.
	s := newStore(t, func(call int, w http.ResponseWriter, r *http.Request) {
		if call < 3 {
			_, _ = w.Write(program[:10])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(program)
	})
	c := impatient(t)
	c.idleTimeout = 300 * time.Millisecond
	_, err := c.Fetch(t.Context(), s.executable(program), "", quiet)
	require.NoError(t, err)
	require.EqualValues(t, 3, s.calls.Load())

	ctx, cancel := context.WithCancel(t.Context())
	s = newStore(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	c = impatient(t)
	_, err = c.Fetch(ctx, s.executable(program), "", quiet)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, s.calls.Load())
	requireNoHit(t, c)
}

// A download that SIGKILL ended is never used, and the next download removes it.
func TestAKilledDownloadIsNeverUsed(t *testing.T) {
	t.Parallel()
	half := make(chan struct{})
	s := newStore(t, func(call int, w http.ResponseWriter, r *http.Request) {
		if call > 1 {
			_, _ = w.Write(program)
			return
		}
		_, _ = w.Write(program[:len(program)/2])
		_ = http.NewResponseController(w).Flush()
		close(half)
		<-r.Context().Done()
	})
	c := impatient(t)
	require.NoError(t, os.MkdirAll(c.dir, 0o700))
	cmd := helper(t, c.dir, s.executable(program))
	require.NoError(t, cmd.Start())
	<-half
	parts := func() []string {
		list, err := filepath.Glob(filepath.Join(c.dir, "*.part-*"))
		require.NoError(t, err)
		return list
	}
	require.Len(t, parts(), 1)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.False(t, isProgram(filepath.Join(c.dir, checksum(program))))
	require.Len(t, parts(), 1)

	file, err := c.Fetch(t.Context(), s.executable(program), "", quiet)
	require.NoError(t, err)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(program, b))
	require.Empty(t, parts())
}

const helperVariable = "DLITE_TEST_FETCH_INTO"

// helper returns another process that fetches the program.
func helper(t *testing.T, dir string, exe *stage.Executable) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFetchHelper$")
	cmd.Env = append(os.Environ(), helperVariable+"="+dir, "FETCH_URL="+exe.URL, "FETCH_SHA="+exe.SHA256)
	return cmd
}

func TestFetchHelper(t *testing.T) {
	dir := os.Getenv(helperVariable)
	if dir == "" {
		return // this is not the other process
	}
	exe := &stage.Executable{URL: os.Getenv("FETCH_URL"), SHA256: os.Getenv("FETCH_SHA")}
	_, err := New(dir, "plugin").Fetch(t.Context(), exe, "", quiet)
	require.NoError(t, err)
}
