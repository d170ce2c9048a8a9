package logger_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
)

func config(f *fake) logger.StreamConfig {
	return logger.StreamConfig{
		URL: f.URL, Token: "fake-token", Account: "acc", Key: "a/b:c", FlushInterval: time.Millisecond,
	}
}

func status(op string, status, times int) func(http.ResponseWriter, string, int) int {
	return func(_ http.ResponseWriter, got string, n int) int {
		if strings.HasPrefix(got, op) && n < times {
			return status
		}
		return 0
	}
}

// docs/protocol.md 4: the sequences of calls.
func TestStreamMakesTheCallsOfItsVariant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(*logger.StreamConfig)
		want []string
	}{
		{"direct", func(*logger.StreamConfig) {}, []string{
			"POST /stream", "PUT /stream", "POST /blob/link/upload", "PUT /third/party", "DELETE /stream"}},
		{"indirect upload", func(c *logger.StreamConfig) { c.IndirectUpload = true }, []string{
			"POST /stream", "PUT /stream", "POST /blob", "DELETE /stream"}},
		{"skip opening", func(c *logger.StreamConfig) { c.SkipOpeningStream = true }, []string{
			"PUT /stream", "DELETE /stream snapshot"}},
		{"skip closing", func(c *logger.StreamConfig) { c.SkipClosingStream = true }, []string{
			"POST /stream", "PUT /stream"}},
		{"skip both", func(c *logger.StreamConfig) { c.SkipOpeningStream, c.SkipClosingStream = true, true }, []string{
			"PUT /stream"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, nil)
			cfg := config(f)
			tt.set(&cfg)
			s := logger.OpenStream(t.Context(), cfg)
			_, err := io.WriteString(s, "one\ntwo\r\nthr")
			require.NoError(t, err)
			f.await(t, "PUT /stream", 1)
			_, err = io.WriteString(s, "ee")
			require.NoError(t, err)
			require.NoError(t, s.Close(t.Context()))

			assert.Equal(t, tt.want, f.ops())
			live := f.live(t)
			require.Len(t, live, 3)
			for i, l := range live {
				assert.Equal(t, []string{"one\n", "two\r\n", "three"}[i], l.Out)
				assert.EqualValues(t, i, l.Pos)
				assert.Equal(t, "info", l.Level)
				assert.Equal(t, time.UTC, l.Time.Location())
			}
			for _, c := range f.calls {
				if c.op == "PUT /third/party" {
					assert.Empty(t, c.token, "the token must not travel to the link")
					continue
				}
				assert.Equal(t, "fake-token", c.token)
				assert.Equal(t, "accountID=acc&key=a%2Fb%3Ac", strings.TrimSuffix(c.rawQuery, "&snapshot=true"))
			}
			for _, op := range []string{"POST /blob", "PUT /third/party"} {
				for _, c := range f.of(op) {
					assert.Equal(t, live, archive(t, c.body))
					assert.EqualValues(t, len(c.body), c.length, "links want a Content-Length")
				}
			}
		})
	}
}

func TestStreamTrimsNewlines(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	cfg := config(f)
	cfg.TrimNewLineSuffix, cfg.IndirectUpload = true, true
	s := logger.OpenStream(t.Context(), cfg)
	_, _ = io.WriteString(s, "a\nb\r\n\n")
	require.NoError(t, s.Close(t.Context()))
	var outs []string
	for _, l := range archive(t, f.of("POST /blob")[0].body) {
		outs = append(outs, l.Out)
	}
	assert.Equal(t, []string{"a", "b", ""}, outs)
}

func TestStreamSendsAnEmptyLog(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	s := logger.OpenStream(t.Context(), config(f))
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, []string{"POST /stream", "POST /blob/link/upload", "PUT /third/party", "DELETE /stream"}, f.ops())
	assert.EqualValues(t, 0, f.of("PUT /third/party")[0].length)
}

// Rule L2: failed requests lose no lines, a failed open does not lose the log, and
// a retried upload sends the whole body.
func TestStreamLosesNothingToFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fail func(http.ResponseWriter, string, int) int
		want []string // the end of the calls
	}{
		{"open fails for ever", status("POST /stream", 500, 1000), []string{"PUT /third/party", "DELETE /stream"}},
		{"open is refused", status("POST /stream", 401, 1000), []string{"PUT /third/party", "DELETE /stream"}},
		{"the first PUTs fail", status("PUT /stream", 503, 3), []string{"PUT /third/party", "DELETE /stream"}},
		{"PUTs are refused", status("PUT /stream", 413, 1000), []string{"PUT /third/party", "DELETE /stream"}},
		{"the link fails once", status("PUT /third/party", 500, 1), []string{"PUT /third/party", "DELETE /stream"}},
		{"the link fails for ever", status("PUT /third/party", 503, 1000), []string{"POST /blob", "DELETE /stream"}},
		{"the link is refused", status("PUT /third/party", 403, 1000), []string{"POST /blob", "DELETE /stream"}},
		{"no links", status("POST /blob/link/upload", 404, 1000), []string{"POST /blob", "DELETE /stream"}},
		{"DELETE fails at first", status("DELETE /stream", 502, 2), []string{"PUT /third/party", "DELETE /stream"}},
		{"DELETE of a stream that was not opened", status("DELETE /stream", 404, 1000), []string{"PUT /third/party", "DELETE /stream"}},
		{"connections break in mid-body", func(_ http.ResponseWriter, op string, n int) int {
			if n == 0 && op != "POST /stream" {
				panic(http.ErrAbortHandler)
			}
			return 0
		}, []string{"PUT /third/party", "DELETE /stream"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, tt.fail)
			s := logger.OpenStream(t.Context(), config(f))
			var want strings.Builder
			for i := range 500 {
				_, err := fmt.Fprintf(io.MultiWriter(&want, s), "line %d\n", i)
				require.NoError(t, err)
			}
			require.NoError(t, s.Close(t.Context()))
			ops := f.ops()
			require.GreaterOrEqual(t, len(ops), 2)
			assert.Equal(t, tt.want, ops[len(ops)-2:])
			for _, op := range []string{"POST /blob", "PUT /third/party"} {
				for _, c := range f.of(op) {
					assert.Equal(t, want.String(), text(archive(t, c.body)), "every upload has the whole body")
				}
			}
		})
	}
}

func TestStreamFallsBackToASnapshot(t *testing.T) {
	t.Parallel()
	f := newFake(t, status("POST /blob", 403, 1000))
	s := logger.OpenStream(t.Context(), config(f))
	_, _ = io.WriteString(s, "one\ntwo\n")
	require.NoError(t, s.Close(t.Context()), "live has it all")
	ops := f.ops()
	assert.Equal(t, "DELETE /stream snapshot", ops[len(ops)-1])
}

func TestStreamResendsTheSameLinesInOrder(t *testing.T) {
	t.Parallel()
	f := newFake(t, status("PUT /stream", 500, 2))
	cfg := config(f)
	cfg.SkipOpeningStream = true
	s := logger.OpenStream(t.Context(), cfg)
	_, _ = io.WriteString(s, "first\n")
	f.await(t, "PUT /stream", 1)
	_, _ = io.WriteString(s, "second\n")
	require.NoError(t, s.Close(t.Context()))
	puts := f.of("PUT /stream")
	require.GreaterOrEqual(t, len(puts), 4)
	assert.Equal(t, puts[0].body, puts[1].body)
	assert.Equal(t, puts[0].body, puts[2].body)
	assert.Contains(t, string(puts[3].body), `"pos":1`)
}

func TestOneRefusalDoesNotEndTheLiveStream(t *testing.T) {
	t.Parallel()
	f := newFake(t, status("PUT /stream", 413, 1))
	cfg := config(f)
	cfg.SkipOpeningStream = true
	s := logger.OpenStream(t.Context(), cfg)
	_, _ = io.WriteString(s, "too much\n")
	f.await(t, "PUT /stream", 1)
	_, _ = io.WriteString(s, "taken\n")
	f.await(t, "PUT /stream", 2)
	err := s.Close(t.Context())
	var loss *logger.LossError
	require.ErrorAs(t, err, &loss)
	assert.EqualValues(t, 1, loss.Lines)
	assert.ErrorContains(t, err, "on purpose", "the service's reason")
	assert.Contains(t, string(f.of("PUT /stream")[1].body), "taken")
}

// Rule L2: Close returns the loss within limited time.
func TestCloseReportsLostLines(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, skip := range []bool{false, true} {
		s := logger.OpenStream(t.Context(), logger.StreamConfig{
			URL: gone.URL, Token: "fake-token", Account: "a", Key: "fake-key",
			CloseTimeout: 200 * time.Millisecond, SkipOpeningStream: skip,
		})
		_, err := io.WriteString(s, "a\nb\nc")
		require.NoError(t, err)
		start := time.Now()
		err = s.Close(t.Context())
		assert.Less(t, time.Since(start), 10*time.Second)
		var loss *logger.LossError
		require.ErrorAs(t, err, &loss)
		assert.EqualValues(t, 3, loss.Lines)
		assert.Positive(t, loss.Bytes)
		assert.NotContains(t, err.Error(), "fake-token")
		assert.NotContains(t, err.Error(), "fake-key")
		assert.Equal(t, err, s.Close(t.Context()), "closing again")
		_, err = io.WriteString(s, "late")
		require.ErrorIs(t, err, os.ErrClosed)
	}
}

func TestCloseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := newFake(t, func(_ http.ResponseWriter, _ string, _ int) int { <-release; return 0 })
	defer close(release)
	s := logger.OpenStream(t.Context(), config(f))
	_, _ = io.WriteString(s, "x\n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := s.Close(ctx)
	assert.Less(t, time.Since(start), 10*time.Second)
	var loss *logger.LossError
	require.ErrorAs(t, err, &loss)
	assert.EqualValues(t, 1, loss.Lines)
}

// Rule L2: a slow service does not block the step, and memory use is limited.
func TestAHangingServiceNeitherBlocksNorFillsMemory(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := newFake(t, func(_ http.ResponseWriter, op string, _ int) int {
		if op == "PUT /stream" {
			<-release
		}
		return 0
	})
	dir := t.TempDir()
	cfg := config(f)
	cfg.TempDir, cfg.MaxMemory, cfg.IndirectUpload = dir, 4<<10, true
	s := logger.OpenStream(t.Context(), cfg)
	var want strings.Builder
	out := io.MultiWriter(&want, s)
	for i := range 20_000 {
		_, err := fmt.Fprintf(out, "line %d <&> é\n", i)
		require.NoError(t, err)
	}
	if runtime.GOOS != "windows" {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, files, "a crash would leave nothing either")
	}
	close(release)
	require.NoError(t, s.Close(t.Context()))
	blob := f.of("POST /blob")[0]
	lines := archive(t, blob.body)
	assert.EqualValues(t, len(blob.body), blob.length, "a body from disk has a Content-Length too")
	assert.Equal(t, want.String(), text(lines))
	assert.EqualValues(t, 19_999, lines[len(lines)-1].Pos)
	assert.Equal(t, lines, f.live(t))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "nothing remains on disk")
}

func TestStreamIsBoundedOnDiskToo(t *testing.T) {
	t.Parallel()
	f := newFake(t, status("PUT /stream", 403, 1000))
	cfg := config(f)
	cfg.MaxMemory, cfg.MaxSpool, cfg.TempDir, cfg.MaxWait = 1<<10, 10<<10, t.TempDir(), time.Millisecond
	s := logger.OpenStream(t.Context(), cfg)
	for range 1000 {
		_, err := io.WriteString(s, "0123456789\n")
		require.NoError(t, err)
	}
	err := s.Close(t.Context())
	var loss *logger.LossError
	require.ErrorAs(t, err, &loss)
	body := f.of("PUT /third/party")[0].body
	kept := archive(t, body)
	assert.EqualValues(t, 1000, int64(len(kept))+loss.Lines)
	assert.NotEmpty(t, kept)
	assert.LessOrEqual(t, len(body), 10<<10)
}

func TestStreamDropsUploadedLinesIfItWillNotArchiveThem(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	cfg := config(f)
	cfg.SkipClosingStream, cfg.MaxSpool, cfg.MaxMemory, cfg.TempDir = true, 4<<10, 1<<10, t.TempDir()
	s := logger.OpenStream(t.Context(), cfg)
	// Together far more than MaxSpool.
	for i := range 20 {
		_, err := fmt.Fprintf(s, "%d %s\n", i, strings.Repeat("x", 1500))
		require.NoError(t, err)
		f.await(t, "PUT /stream", i+1)
	}
	require.NoError(t, s.Close(t.Context()))
	assert.Len(t, f.live(t), 20)
}

func TestStreamTakesAnyBytesFromAnyWriter(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	cfg := config(f)
	cfg.IndirectUpload = true
	s := logger.OpenStream(t.Context(), cfg)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 250 {
				_, _ = io.WriteString(s, "whole line\n")
			}
		})
	}
	wg.Wait()
	_, _ = s.Write([]byte{'x', 0xff, 0, '\n'})
	_, _ = io.WriteString(s, strings.Repeat("y", 200<<10))
	require.NoError(t, s.Close(t.Context()))
	lines := archive(t, f.of("POST /blob")[0].body)
	for i, l := range lines {
		assert.EqualValues(t, i, l.Pos)
		assert.LessOrEqual(t, len(l.Out), 64<<10)
	}
	assert.Equal(t, strings.Repeat("whole line\n", 1000)+"x\uFFFD\x00\n"+strings.Repeat("y", 200<<10), text(lines))
}

func TestStreamFollowsNoRedirectWithItsToken(t *testing.T) {
	t.Parallel()
	other := newFake(t, nil)
	f := newFake(t, func(w http.ResponseWriter, op string, _ int) int {
		if op == "PUT /stream" {
			w.Header().Set("Location", other.URL)
			return http.StatusTemporaryRedirect
		}
		return 0
	})
	s := logger.OpenStream(t.Context(), config(f))
	_, _ = io.WriteString(s, "x\n")
	require.NoError(t, s.Close(t.Context()))
	assert.Empty(t, other.ops())
}

func TestTheEndOfTheStepsContextDoesNotEndTheLog(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s := logger.OpenStream(ctx, config(f))
	cancel()
	_, _ = io.WriteString(s, "killed\n")
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, "killed\n", text(f.live(t)))
}

func ExampleOpenStream() {
	logs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/blob" {
			body, _ := io.ReadAll(r.Body)
			fmt.Printf("archived %d lines of %s\n", strings.Count(string(body), "\n"), r.URL.Query().Get("key"))
		}
	}))
	defer logs.Close()

	ctx := context.Background()
	s := logger.OpenStream(ctx, logger.StreamConfig{
		URL: logs.URL, Token: "fake-token", Account: "account", Key: "build/1", IndirectUpload: true,
	})
	_, _ = io.WriteString(s, "compiling\nno newline at the end")
	if err := s.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: archived 2 lines of build/1
}
