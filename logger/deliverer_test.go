package logger_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
)

// events is the log of a deliverer.
type events struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all.Write(p)
}

func (e *events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all.String()
}

// post is a deliverer and its surroundings.
type post struct {
	*logger.Deliverer
	dir, memory string
	events      *events
}

// openPost opens a deliverer. An empty memory means a directory on the disk, and so a
// deliverer whose logs end with the process.
func openPost(t *testing.T, p *pipes, set func(*logger.DelivererConfig)) *post {
	t.Helper()
	s := &post{dir: filepath.Join(t.TempDir(), "logs"), memory: t.TempDir(), events: &events{}}
	cfg := logger.DelivererConfig{Dir: s.dir, Memory: s.memory, HTTPClient: p.client, Log: zerolog.New(s.events)}
	if set != nil {
		set(&cfg)
	}
	var err error
	s.Deliverer, err = logger.OpenDeliverer(cfg)
	require.NoError(t, err)
	return s
}

// close delivers for at most a minute.
func (s *post) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.Close(ctx))
}

// left lists the files with lines.
func (s *post) left(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*-*"))
	require.NoError(t, err)
	return files
}

func logTo(key string) logger.StreamConfig {
	return logger.StreamConfig{URL: "http://logs/", Token: "fake-token", Account: "a", Key: key, MaxMemory: 4 << 10}
}

// Rule L2: the log service is away from the start of a step until an hour after its end.
func TestALogArrivesWhenItsServiceReturnsLongAfterTheStep(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []bool{false, true} {
		for _, firstLines := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				k := &keeper{opened: snapshot}
				p := newPipes(t, k)
				d := openPost(t, p, nil)
				target := logTo("k")
				target.SkipOpeningStream = snapshot
				s := d.Open(t.Context(), target)
				var want strings.Builder
				if firstLines {
					_, _ = io.WriteString(io.MultiWriter(s, &want), "before\n")
					<-time.After(time.Second)
				}
				p.away.Store(true)
				for i := range 1000 {
					_, _ = fmt.Fprintf(io.MultiWriter(s, &want), "line %d\n", i)
				}
				_, _ = io.WriteString(io.MultiWriter(s, &want), "no newline")
				begin := time.Now()
				require.NoError(t, s.Close(t.Context()))
				assert.Less(t, time.Since(begin), 10*time.Second)
				assert.NotEmpty(t, d.left(t))
				<-time.After(time.Hour)
				p.away.Store(false)
				d.close(t)
				assert.Equal(t, want.String(), text(k.archived()))
				assert.Equal(t, want.String(), text(k.live), "each line is sent once")
				assert.Equal(t, 1, k.count("DELETE /stream"))
				assert.Empty(t, d.left(t))
				assert.Contains(t, d.events.String(), "delivered late")
			})
		}
	}
}

// Logs of one service do not wait for a service that is away.
func TestALogServiceThatIsAwayDoesNotDelayAnotherOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		p := newPipes(t, k)
		p.away.Store(true)
		d := openPost(t, p, nil)
		for _, host := range []string{"http://away", "http://logs"} {
			target := logTo("k")
			target.URL = host
			s := d.Open(t.Context(), target)
			_, _ = io.WriteString(s, host)
			require.NoError(t, s.Close(t.Context()))
		}
		p.awayHost.Store("away:80")
		p.away.Store(false)
		d.close(t)
		assert.Equal(t, "http://logs", text(k.archived()))
		assert.Contains(t, d.events.String(), `"bytes":`)
		assert.Contains(t, d.events.String(), "the delegate ends")
	})
}

// A log that has no space displaces the largest one that waits, and no smaller one.
func TestTheLargestWaitingLogIsDroppedWhenTheDiskBoundIsReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		p := newPipes(t, k)
		p.away.Store(true)
		d := openPost(t, p, func(c *logger.DelivererConfig) { c.MaxBytes = 300 << 10 })
		write := func(key string, size int) {
			s := d.Open(t.Context(), logTo(key))
			line := strings.Repeat(key[:1], 1023) + "\n"
			for range size >> 10 {
				_, _ = io.WriteString(s, line)
			}
			_ = s.Close(t.Context())
		}
		write("small", 1<<10)
		write("large", 200<<10)
		write("medium", 100<<10)
		assert.Contains(t, d.events.String(), `"log":"large"`)
		assert.Contains(t, d.events.String(), "a log is dropped")
		assert.NotContains(t, d.events.String(), "cannot be kept")
		write("huge", 400<<10)
		assert.Contains(t, d.events.String(), `"log":"huge","error":"the kept logs use all of their space"`)
		p.away.Store(false)
		d.close(t)
		assert.Contains(t, text(k.live), "sss\n")
		assert.Contains(t, text(k.live), "mmm\n")
		assert.NotContains(t, text(k.live), "lll\n")
		assert.Empty(t, d.left(t))
	})
}

// The token of a log ends before its service returns.
func TestALogWhoseTokenHasEndedIsDroppedWithAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{refuse: func(string, int, int64, http.Header) int { return http.StatusUnauthorized }}
		p := newPipes(t, k)
		p.away.Store(true)
		d := openPost(t, p, nil)
		s := d.Open(t.Context(), logTo("k"))
		_, _ = io.WriteString(s, "x\n")
		require.NoError(t, s.Close(t.Context()))
		p.away.Store(false)
		<-time.After(5 * time.Minute)
		assert.NotEmpty(t, d.left(t), "a service may refuse tokens for a while")
		<-time.After(10 * time.Minute)
		d.close(t)
		assert.Empty(t, d.left(t))
		assert.Contains(t, d.events.String(), "status 401")
		assert.Contains(t, d.events.String(), "a log is dropped")
	})
}

// The deliverer has a token that is valid longer than the token of the log, for one of two services.
func TestALogWhoseTokenHasEndedArrivesWithAnotherToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		p := newPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(logheader.Token) != "fake-token-of-the-delegate" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			k.ServeHTTP(w, r)
		}))
		p.away.Store(true)
		d := openPost(t, p, func(c *logger.DelivererConfig) {
			c.Token = func(url string) string {
				if url != "http://logs" {
					return ""
				}
				return "fake-token-of-the-delegate"
			}
		})
		for _, url := range []string{"http://logs/", "http://others/"} {
			target := logTo("k")
			target.URL = url
			s := d.Open(t.Context(), target)
			_, _ = io.WriteString(s, url)
			require.NoError(t, s.Close(t.Context()))
		}
		<-time.After(20 * time.Hour)
		p.away.Store(false)
		<-time.After(30 * time.Minute)
		d.close(t)
		assert.Equal(t, "http://logs/", text(k.archived()))
		assert.Contains(t, d.events.String(), "delivered late")
		assert.Contains(t, d.events.String(), "a log is dropped")
	})
}

func TestALogIsDroppedWhenItIsTooOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, &keeper{})
		p.away.Store(true)
		d := openPost(t, p, func(c *logger.DelivererConfig) { c.MaxAge = 2 * time.Hour })
		s := d.Open(t.Context(), logTo("k"))
		_, _ = io.WriteString(s, "x\n")
		require.NoError(t, s.Close(t.Context()))
		<-time.After(110 * time.Minute)
		assert.NotEmpty(t, d.left(t))
		<-time.After(20 * time.Minute)
		assert.Empty(t, d.left(t))
		assert.Contains(t, d.events.String(), "away for too long")
		d.close(t)
	})
}

// A service that refuses a log for another reason than an outage gives the same error as
// without a deliverer.
func TestALogThatItsServiceRefusesIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, &keeper{refuse: func(string, int, int64, http.Header) int { return http.StatusUnauthorized }})
		d := openPost(t, p, nil)
		s := d.Open(t.Context(), logTo("k"))
		_, _ = io.WriteString(s, "x\n")
		var loss *logger.LossError
		require.ErrorAs(t, s.Close(t.Context()), &loss)
		assert.Empty(t, d.left(t))
		d.close(t)
	})
}

// A log that begins again replaces the one that waits: the archive must be the new one's.
func TestALogThatBeginsAgainReplacesTheWaitingOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		p := newPipes(t, k)
		p.away.Store(true)
		d := openPost(t, p, nil)
		for _, out := range []string{"first\n", "second\n"} {
			s := d.Open(t.Context(), logTo("k"))
			_, _ = io.WriteString(s, out)
			require.NoError(t, s.Close(t.Context()))
		}
		p.away.Store(false)
		d.close(t)
		assert.Equal(t, "second\n", text(k.archived()))
		assert.Contains(t, d.events.String(), "the log has begun again")
	})
}

// While the service works, a log leaves nothing on the disk.
func TestALogWithAServiceLeavesNoFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{}
		d := openPost(t, newPipes(t, k), nil)
		s := d.Open(t.Context(), logTo("k"))
		for i := range 1000 {
			_, _ = fmt.Fprintf(s, "line %d\n", i)
		}
		require.NoError(t, s.Close(t.Context()))
		assert.Len(t, k.archived(), 1000)
		assert.Empty(t, d.left(t))
		d.close(t)
	})
}

func TestTheOutputOfATaskWithoutALogServiceIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := openPost(t, newPipes(t, &keeper{}), nil)
		s := d.Open(t.Context(), logger.StreamConfig{Key: "k"})
		_, err := io.WriteString(s, "x\n")
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		d.close(t)
	})
}

func TestTwoDeliverersDoNotShareADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := logger.OpenDeliverer(logger.DelivererConfig{Dir: dir})
	require.NoError(t, err)
	_, err = logger.OpenDeliverer(logger.DelivererConfig{Dir: dir})
	require.ErrorContains(t, err, "another delegate uses it")
	require.NoError(t, d.Close(t.Context()))
}

// contains reports whether a file below a directory contains text.
func contains(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || bytes.Contains(b, []byte(text))
		return err
	}))
	return found
}
