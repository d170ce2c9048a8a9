package logservice_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/logservice"
)

// Rule L2: the SDK's writer with this server in every variant, live and archived.
func TestOurWriterInEveryVariant(t *testing.T) {
	t.Parallel()
	for _, variant := range []struct {
		name string
		set  func(*logger.StreamConfig)
	}{
		{"link", func(*logger.StreamConfig) {}},
		{"indirect", func(c *logger.StreamConfig) { c.IndirectUpload = true }},
		{"skip opening", func(c *logger.StreamConfig) { c.SkipOpeningStream = true }},
		{"skip closing", func(c *logger.StreamConfig) { c.SkipClosingStream = true }},
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			cfg := logger.StreamConfig{URL: b.http.URL, Token: token, Account: "acc", Key: "odd key/ä?&=+"}
			variant.set(&cfg)

			got := make(chan string)
			go func() {
				var all strings.Builder
				for l := range b.logs.Tail(t.Context(), cfg.Account, cfg.Key) {
					all.WriteString(l.Out)
				}
				got <- all.String()
			}()
			var want strings.Builder
			s := logger.OpenStream(t.Context(), cfg)
			for i := range 3000 {
				_, err := fmt.Fprintf(io.MultiWriter(&want, s), "line %d\n", i)
				require.NoError(t, err)
			}
			_, _ = io.WriteString(io.MultiWriter(&want, s), "the end")
			require.NoError(t, s.Close(t.Context()))
			if cfg.SkipClosingStream {
				b.ok("DELETE", "/stream?accountID=acc&key="+escape(cfg.Key), "")
			}
			assert.Equal(t, want.String(), <-got, "live")
			archived := outs(t, b.ok("GET", "/blob?accountID=acc&key="+escape(cfg.Key), ""))
			assert.Equal(t, want.String(), strings.Join(archived, ""), "archive")
		})
	}
}

func escape(key string) string {
	return strings.NewReplacer(" ", "%20", "ä", "%C3%A4", "?", "%3F", "&", "%26", "=", "%3D", "+", "%2B").Replace(key)
}

// faulty is a handler between the writer and the server that injects faults.
type faulty struct {
	next http.Handler

	mu sync.Mutex
	n  int
	do func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	n := f.n
	f.n++
	f.mu.Unlock()
	f.do(n, w, r, f.next)
}

// Rule L2: no failure of the service loses or repeats lines.
func TestOurWriterLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(int, http.ResponseWriter, *http.Request, http.Handler){
		"500s": func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if n%3 != 2 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			next.ServeHTTP(w, r)
		},
		"closing in mid-body": func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if n%2 == 0 {
				_, _ = io.CopyN(io.Discard, r.Body, 10)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		},
		"losing every second answer": func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if n%2 == 0 && !strings.HasPrefix(r.URL.Path, "/blob") {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		},
	} {
		for _, snapshot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, snapshot %v", name, snapshot), func(t *testing.T) {
				t.Parallel()
				b := setUp(t)
				front := httptest.NewServer(&faulty{next: b.logs, do: do})
				defer front.Close()
				s := logger.OpenStream(t.Context(), logger.StreamConfig{
					URL: front.URL, Token: token, Account: "acc", Key: "run/1:step",
					SkipOpeningStream: snapshot, FlushInterval: time.Millisecond, MaxMemory: 8 << 10, TempDir: t.TempDir(),
				})
				var want strings.Builder
				for i := range 2000 {
					_, err := fmt.Fprintf(io.MultiWriter(&want, s), "line %d\n", i)
					require.NoError(t, err)
				}
				require.NoError(t, s.Close(t.Context()))
				assert.Equal(t, want.String(), strings.Join(outs(t, b.ok("GET", "/blob"+query, "")), ""))
			})
		}
	}
}

// Rule L2: the service restarts.
func TestOurWriterOutlivesARestart(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var current http.Handler
	set := func(h http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		current = h
	}
	refused := make(chan struct{}, 1000)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := current
		mu.Unlock()
		if h == nil {
			refused <- struct{}{}
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	defer front.Close()

	first, second := setUp(t), setUp(t)
	set(first.logs)
	s := logger.OpenStream(t.Context(), logger.StreamConfig{URL: front.URL, Token: token, Account: "acc", Key: "run/1:step"})
	_, _ = io.WriteString(s, "before\n")
	for l := range first.logs.Tail(t.Context(), "acc", "run/1:step") {
		assert.Equal(t, "before\n", l.Out)
		break
	}
	set(nil)
	_, _ = io.WriteString(s, "while it is away\n")
	<-refused
	set(second.logs)
	_, _ = io.WriteString(s, "after\n")
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, "before\nwhile it is away\nafter\n",
		strings.Join(outs(t, second.ok("GET", "/blob"+query, "")), ""))
}

func TestSeveralWritersAndReaders(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("POST", "/stream"+query, "")
	const writers, each = 4, 200
	var readers, work sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			next := map[string]int{}
			total := 0
			for l := range b.logs.Tail(t.Context(), "acc", "run/1:step") {
				var w string
				var n int
				_, err := fmt.Sscanf(l.Out, "%s %d", &w, &n)
				assert.NoError(t, err)
				assert.Equal(t, next[w], n, "each writer's lines in order")
				next[w] = n + 1
				total++
			}
			assert.Equal(t, writers*each, total)
		})
	}
	for w := range writers {
		work.Go(func() {
			s := logger.OpenStream(t.Context(), logger.StreamConfig{
				URL: b.http.URL, Token: token, Account: "acc", Key: "run/1:step",
				SkipOpeningStream: true, SkipClosingStream: true, FlushInterval: time.Millisecond,
			})
			for i := range each {
				_, _ = fmt.Fprintf(s, "writer-%d %d\n", w, i)
			}
			assert.NoError(t, s.Close(t.Context()))
		})
	}
	work.Wait()
	b.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	readers.Wait()
}

func TestTailEndsWithItsContextAndTheServer(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := make(chan struct{}, 2)
	tail := func(ctx context.Context, key string) {
		for range b.logs.Tail(ctx, "acc", key) {
			t.Error("a line from nowhere")
		}
		ends <- struct{}{}
	}
	go tail(ctx, "never")
	cancel(errors.New("enough"))
	<-ends
	go tail(t.Context(), "never")
	b.ok("POST", "/stream?accountID=acc&key=silent", "")
	go tail(t.Context(), "silent")
	require.NoError(t, b.logs.Close())
	<-ends
	<-ends
}

func TestTailReadsTheLinesOfForeignWriters(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.ok("PUT", "/stream"+query, `[{"level":"info","pos":3,"out":"a","time":"2024-05-06T07:08:09.5Z","args":{"k":"v","n":1}},
		{"out":"b","time":"yesterday","new":[1]},{"x":1}]`)
	b.ok("DELETE", "/stream"+query, "")
	var got []logger.Line
	for l := range b.logs.Tail(t.Context(), "acc", "run/1:step") {
		got = append(got, l)
	}
	assert.Equal(t, []logger.Line{
		{Level: "info", Pos: 3, Out: "a", Time: time.Date(2024, 5, 6, 7, 8, 9, 5e8, time.UTC), Args: map[string]string{"k": "v"}},
		{Out: "b"},
		{Level: "info", Out: `{"x":1}` + "\n"},
	}, got)
}

// A reader that continues gets each line once, from the stream and from its archive.
func TestLinesContinueAtANumber(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	read := func(from int64, follow bool) (got []string) {
		for l, err := range b.logs.Lines(t.Context(), "acc", "run/1:step", from, follow) {
			require.NoError(t, err)
			assert.Equal(t, from+int64(len(got)), l.Pos)
			got = append(got, l.Out)
		}
		return got
	}
	assert.Empty(t, read(0, false), "a log that does not exist has no lines, and no end to wait for")
	b.ok("PUT", "/stream"+query, `[{"pos":0,"out":"a"},{"pos":1,"out":"b"}]`)
	assert.Equal(t, []string{"a", "b"}, read(0, false))
	assert.Equal(t, []string{"b"}, read(1, false))
	following := make(chan []string)
	go func() { following <- read(1, true) }()
	b.ok("PUT", "/stream"+query, `[{"pos":2,"out":"c"}]`)
	b.ok("DELETE", "/stream"+query+"&snapshot=true", "")
	assert.Equal(t, []string{"b", "c"}, <-following)
	assert.Equal(t, []string{"c"}, read(2, true))
	assert.Empty(t, read(3, true))
}

func ExampleServer_Tail() {
	logs, err := logservice.New(logservice.Config{
		Authorize: logservice.Tokens(map[string]string{"account": "fake-token"}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = logs.Close() }()
	server := httptest.NewServer(logs)
	defer server.Close()

	ctx := context.Background()
	s := logger.OpenStream(ctx, logger.StreamConfig{URL: server.URL, Token: "fake-token", Account: "account", Key: "build/1"})
	_, _ = io.WriteString(s, "compiling\ndone\n")
	if err := s.Close(ctx); err != nil {
		fmt.Println(err)
	}
	for line := range logs.Tail(ctx, "account", "build/1") {
		fmt.Print(line.Out)
	}
	// Output:
	// compiling
	// done
}
