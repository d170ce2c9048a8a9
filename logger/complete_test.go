package logger_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
)

// completing is a fail function of a fake that completes logs with their last lines, as long
// as can is true.
func completing(f **fake, can *atomic.Bool) func(http.ResponseWriter, string, int) int {
	return func(w http.ResponseWriter, op string, _ int) int {
		if can.Load() && (op == "POST /stream" || op == "PUT /stream") {
			w.Header().Set(logheader.Complete, "false")
			if calls := (*f).of(op); calls[len(calls)-1].header.Get(logheader.Complete) == "true" {
				w.Header().Set(logheader.Complete, "true")
			}
		}
		return 0
	}
}

func newCompleting(t *testing.T) (*fake, *atomic.Bool) {
	t.Helper()
	var f *fake
	can := &atomic.Bool{}
	can.Store(true)
	f = newFake(t, completing(&f, can))
	return f, can
}

// Without an upload and a close, the service has all lines once.
func TestTheLastLinesCompleteALog(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"with the last lines": false, "after them": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := newCompleting(t)
			s := logger.OpenStream(t.Context(), config(f))
			_, _ = io.WriteString(s, "one\n")
			f.await(t, "PUT /stream", 1)
			if !early {
				_, _ = io.WriteString(s, "two")
			}
			require.NoError(t, s.Close(t.Context()))
			assert.Equal(t, []string{"POST /stream", "PUT /stream"}, f.ops())
			puts := f.of("PUT /stream")
			assert.Empty(t, puts[0].header.Get(logheader.Complete), "lines may follow")
			assert.Equal(t, "true", puts[len(puts)-1].header.Get(logheader.Complete))
			want := "one\ntwo"
			if early {
				want = "one\n"
			}
			assert.Equal(t, want, text(f.live(t)))
		})
	}
}

// A log that another process opens or closes is not completed.
func TestOnlyTheWholeLogIsCompleted(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*logger.StreamConfig){
		"skip opening": func(c *logger.StreamConfig) { c.SkipOpeningStream = true },
		"skip closing": func(c *logger.StreamConfig) { c.SkipClosingStream = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := newCompleting(t)
			cfg := config(f)
			set(&cfg)
			s := logger.OpenStream(t.Context(), cfg)
			_, _ = io.WriteString(s, "one\n")
			require.NoError(t, s.Close(t.Context()))
			for _, c := range f.of("PUT /stream") {
				assert.Empty(t, c.header.Get(logheader.Complete))
			}
		})
	}
}

// A deliverer sends a short log in one call to a service that is known to allow that. If
// another service has its address later, the log still arrives.
func TestAShortLogIsOneCall(t *testing.T) {
	t.Parallel()
	f, can := newCompleting(t)
	d, err := logger.OpenDeliverer(logger.DelivererConfig{Dir: t.TempDir(), Memory: t.TempDir()})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close(t.Context())) }()
	send := func(key string, lines ...string) {
		cfg := config(f)
		cfg.Key, cfg.FlushInterval = key, time.Hour // every log ends earlier
		s := d.Open(t.Context(), cfg)
		for _, line := range lines {
			_, _ = io.WriteString(s, line)
		}
		require.NoError(t, s.Close(t.Context()))
	}
	// ops returns the operations of a log, without the PUT to its link.
	ops := func(key string) (all []string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.calls {
			if c.key == key {
				all = append(all, c.op)
			}
		}
		return all
	}
	send("first", "one\n")
	assert.Equal(t, []string{"POST /stream", "PUT /stream"}, ops("first"))
	send("second", "one\n", "two\n")
	assert.Equal(t, []string{"PUT /stream"}, ops("second"))
	send("empty")
	assert.Equal(t, []string{"POST /stream", "PUT /stream"}, ops("empty"))
	can.Store(false)
	send("foreign", "one\n")
	assert.Equal(t, []string{"PUT /stream", "POST /blob/link/upload", "DELETE /stream"}, ops("foreign"))
	send("known", "one\n")
	assert.Equal(t, []string{"POST /stream", "PUT /stream", "POST /blob/link/upload", "DELETE /stream"}, ops("known"))
}
