package logger_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
)

func piped(p *pipes) logger.StreamConfig {
	return logger.StreamConfig{URL: "http://logs", Token: "fake-token", Account: "a", Key: "k", HTTPClient: p.client}
}

// Rule L2: the step ends during an outage of half a minute.
func TestStreamOutlivesHalfAMinuteWithoutAService(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k := &keeper{opened: true}
			p := newPipes(t, k)
			cfg := piped(p)
			cfg.SkipOpeningStream = snapshot
			s := logger.OpenStream(t.Context(), cfg)
			_, _ = io.WriteString(s, "before\n")
			synctest.Wait()
			<-time.After(time.Second)
			assert.Equal(t, 1, k.count("PUT /stream"))

			p.away.Store(true)
			_, _ = io.WriteString(s, "meanwhile\n")
			start := time.Now()
			time.AfterFunc(30*time.Second, func() { p.away.Store(false) })
			require.NoError(t, s.Close(t.Context()))
			assert.GreaterOrEqual(t, time.Since(start), 30*time.Second)
			assert.Less(t, time.Since(start), 45*time.Second)
			assert.Equal(t, "before\nmeanwhile\n", text(k.archived()))
		})
	}
}

func TestStreamHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	for _, after := range []func() string{
		func() string { return "7" },
		func() string { return time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &keeper{refuse: func(op string, n int, _ int64, h http.Header) int {
				if op == "PUT /stream" && n == 0 {
					h.Set("Retry-After", after())
					return http.StatusTooManyRequests
				}
				return 0
			}}
			p := newPipes(t, k)
			s := logger.OpenStream(t.Context(), piped(p))
			_, _ = io.WriteString(s, "x\n")
			<-time.After(6 * time.Second)
			assert.Equal(t, 1, k.count("PUT /stream"))
			<-time.After(2 * time.Second)
			assert.Equal(t, 2, k.count("PUT /stream"))
			require.NoError(t, s.Close(t.Context()))
			assert.Equal(t, "x\n", text(k.archived()))
		})
	}
}

// The service accepts connections and answers no call.
func TestStreamOutlivesAServiceThatHangs(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"POST /stream", "PUT /stream", "POST /blob/link/upload", "POST /blob", "DELETE /stream"} {
		synctest.Test(t, func(t *testing.T) {
			k := &keeper{waiting: func(got string, n int, r *http.Request) {
				if got == op && n == 0 {
					_, _ = io.Copy(io.Discard, r.Body) // net/http sees the client go only then
					<-r.Context().Done()
				}
			}}
			p := newPipes(t, k)
			cfg := piped(p)
			cfg.RequestTimeout = 3 * time.Second
			s := logger.OpenStream(t.Context(), cfg)
			_, _ = io.WriteString(s, "x\n")
			require.NoError(t, s.Close(t.Context()), op)
			assert.Equal(t, "x\n", text(k.archived()), op)
			assert.Equal(t, 2, k.count(op), op)
		})
	}
}

// The upload of a long log over a slow connection exceeds every time-out, but
// makes progress.
func TestASlowUploadIsNotCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{waiting: func(op string, _ int, r *http.Request) {
			if op == "POST /blob" {
				r.Body = slowly{r.Body}
			}
		}}
		p := newPipes(t, k)
		cfg := piped(p)
		cfg.RequestTimeout, cfg.CloseTimeout = time.Second, time.Hour
		s := logger.OpenStream(t.Context(), cfg)
		for range 100 {
			_, _ = io.WriteString(s, strings.Repeat("x", 1000)+"\n")
		}
		start := time.Now()
		require.NoError(t, s.Close(t.Context()))
		assert.Greater(t, time.Since(start), 5*time.Second)
		assert.Equal(t, 1, k.count("POST /blob"))
		assert.Len(t, k.archived(), 100)
	})
}

type slowly struct{ io.ReadCloser }

func (s slowly) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	<-time.After(time.Duration(n) * time.Second >> 14)
	return n, err
}

// A service without the extension has lost the stream in a restart.
func TestStreamBeginsAgainWhenTheServiceLostIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{opened: true}
		p := newPipes(t, k)
		cfg := piped(p)
		cfg.SkipOpeningStream = true // and so nothing but the live stream is archived
		s := logger.OpenStream(t.Context(), cfg)
		for i := range 5 {
			_, _ = fmt.Fprintf(s, "line %d\n", i)
			<-time.After(time.Second)
		}
		k.mu.Lock()
		assert.Len(t, k.live, 5)
		k.opened, k.live = false, nil
		k.mu.Unlock()
		_, _ = io.WriteString(s, "line 5")
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, "line 0\nline 1\nline 2\nline 3\nline 4\nline 5", text(k.archived()))
	})
}

// Dlite-Log-Next: the service has lost the latest lines.
func TestStreamSendsLostLinesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{opened: true}
		k.refuse = func(op string, n int, _ int64, h http.Header) int {
			if op == "PUT /stream" && n == 5 {
				k.live = k.live[:2]
				h.Set(logheader.Resume, "2")
				return http.StatusConflict
			}
			return 0
		}
		p := newPipes(t, k)
		cfg := piped(p)
		cfg.SkipOpeningStream = true
		s := logger.OpenStream(t.Context(), cfg)
		for i := range 6 {
			_, _ = fmt.Fprintf(s, "line %d\n", i)
			<-time.After(time.Second)
		}
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\n", text(k.archived()))
		assert.Equal(t, []string{"0", "1", "2", "3", "4", "2"}, k.next)
	})
}

func TestStreamSendsLessWhereAServiceTakesLess(t *testing.T) {
	t.Parallel()
	const most = 10_000
	k := &keeper{refuse: func(op string, _ int, size int64, _ http.Header) int {
		if op == "PUT /stream" && size > most {
			return http.StatusRequestEntityTooLarge
		}
		return 0
	}}
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, k)
		cfg := piped(p)
		s := logger.OpenStream(t.Context(), cfg)
		var want strings.Builder
		for i := range 1000 {
			_, _ = fmt.Fprintf(io.MultiWriter(s, &want), "line %d\n", i)
		}
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, want.String(), text(k.live))
	})
}

func TestAStreamThatIsOverTheServicesLimitIsArchivedAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{refuse: func(op string, _ int, _ int64, _ http.Header) int {
			if op == "PUT /stream" {
				return http.StatusRequestEntityTooLarge
			}
			return 0
		}}
		p := newPipes(t, k)
		s := logger.OpenStream(t.Context(), piped(p))
		for i := range 1000 {
			_, _ = fmt.Fprintf(s, "line %d\n", i)
		}
		require.NoError(t, s.Close(t.Context()))
		assert.Len(t, k.archived(), 1000)
		assert.Less(t, k.count("PUT /stream"), 20, "it is given up")
	})
}

// The token of the log service is not sent to a link of another server.
func TestALinkThatPointsElsewhereGetsNothingButTheLog(t *testing.T) {
	t.Parallel()
	elsewhere, f := newFake(t, nil), newFake(t, nil)
	f.link = elsewhere.URL
	s := logger.OpenStream(t.Context(), config(f))
	_, _ = io.WriteString(s, "x\n")
	require.NoError(t, s.Close(t.Context()))
	puts := elsewhere.of("PUT /third/party")
	require.Len(t, puts, 1)
	assert.Equal(t, "x\n", text(archive(t, puts[0].body)))
	assert.Empty(t, puts[0].header.Get(logheader.Writer))
	assert.NotContains(t, fmt.Sprint(puts[0].header), "fake-token")
}
