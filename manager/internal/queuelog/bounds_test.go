package queuelog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
)

func TestNoMoreLinesAfterARefusal(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		w.set(func(*http.Request) (*http.Response, error) { return status(401), nil })
		for i := range 20 {
			w.report(queued(i, fmt.Sprint("reason ", i), time.Now()))
			pass(time.Minute)
		}
		w.report(queuelog.State{Status: "ABORTED"})
		pass(time.Hour)
		assert.Equal(t, 1, w.count())
	})
}

// The writer gives up on a log service that stays unavailable.
func TestTheWriterGivesUpOnAnUnavailableLogService(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		w.set(func(*http.Request) (*http.Response, error) { return nil, errors.New("the service is unreachable") })
		w.report(queued(1, busy, time.Now()))
		pass(24 * time.Hour)
		n := w.count()
		assert.InDelta(t, 24*60, n, 30, "about once a minute")
		w.report(queuelog.State{Status: "ABORTED"})
		pass(24 * time.Hour)
		assert.LessOrEqual(t, w.count()-n, 10)
	})
}

// The log service cannot delay the manager, not even in Close.
func TestTellAndCloseDoNotWait(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		w.set(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		for i := range 100 {
			w.w.Tell(account, fmt.Sprint(i), config(), logKey, queued(1, busy, time.Now()))
		}
		pass(2 * time.Second)
		assert.Equal(t, 8, w.count(), "requests at once")
		began := time.Now()
		for i := range 100 {
			w.w.Tell(account, fmt.Sprint(i), config(), logKey, queuelog.State{Status: "ABORTED"})
		}
		w.w.Close()
		assert.Zero(t, time.Since(began))
		w.w.Tell(account, "late", config(), logKey, queued(1, busy, time.Now()))
	})
}

// A thousand stages share the rate. Stages that are taken go first, because a reader is
// likely to watch them.
func TestRequestsPerSecondAreBounded(t *testing.T) {
	inBubble(t, queuelog.Config{Rate: 100, MaxStages: 1000}, func(t *testing.T, w *fixture) {
		key := func(i int) string { return fmt.Sprintf("stage%d/:init", i) }
		for i := range 2000 {
			w.w.Tell(account, fmt.Sprint(i), config(), key(i), queued(i, busy, time.Now()))
		}
		pass(2 * time.Second)
		assert.InDelta(t, 100, w.count(), 1)
		w.w.Tell(account, "50", config(), key(50), queuelog.State{Status: queuelog.Running, Delegate: "d"})
		pass(10 * time.Millisecond)
		w.mu.Lock()
		last := w.calls[len(w.calls)-1]
		w.mu.Unlock()
		assert.True(t, strings.HasSuffix(last.writer, "-50"), last.writer)
		pass(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Len(t, w.calls, 1001, "more stages are ignored")
		for i := range len(w.calls) - 100 {
			assert.GreaterOrEqual(t, w.calls[i+100].at.Sub(w.calls[i].at), time.Second)
		}
	})
}

// For random calls of Tell: the lines of a stage keep their minimum distance, no line
// repeats the previous one, the last lines report the end, and the writer then forgets
// the stage.
func TestLinesKeepTheirMinimumDistance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t, queuelog.Config{Rate: 1000})
			since := time.Now()
			type written struct {
				at   time.Time
				text string
			}
			var lines []written
			w.set(func(req *http.Request) (*http.Response, error) {
				if req.Method != http.MethodPut {
					return nil, nil
				}
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				var list []logger.Line
				assert.NoError(t, json.Unmarshal(body, &list))
				for _, l := range list {
					assert.EqualValues(t, len(lines), l.Pos)
					lines = append(lines, written{l.Time, l.Out})
				}
				return status(204), nil
			})
			for range rapid.IntRange(0, 60).Draw(rt, "changes") {
				w.report(queued(rapid.IntRange(1, 3).Draw(rt, "place"), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "reason"), since))
				pass(time.Duration(rapid.Int64Range(0, int64(6*time.Second)).Draw(rt, "pause")))
			}
			for i, l := range lines[:max(len(lines)-1, 0)] {
				next := lines[i+1]
				least := 10 * time.Second
				if reason(l.text) != reason(next.text) {
					least = time.Second
				}
				assert.GreaterOrEqual(t, next.at.Sub(l.at), least, "%q, %q", l.text, next.text)
				_, was, _ := strings.Cut(l.text, ": ")
				_, is, _ := strings.Cut(next.text, ": ")
				assert.NotEqual(t, was, is)
			}
			n := len(lines)
			w.report(queuelog.State{Status: "ABORTED", Since: since})
			pass(time.Hour)
			if n > 0 {
				assert.Len(t, lines, n+1)
				assert.Contains(t, lines[n].text, "ABORTED")
				assert.Equal(t, http.MethodDelete, w.calls[len(w.calls)-1].method)
			}
			assert.Zero(t, w.w.Stages())
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// reason returns the last part of a line.
func reason(text string) string { return text[strings.LastIndex(text, ":"):] }

// BenchmarkTell measures one Tell of a changed place with 10,000 stages.
func BenchmarkTell(b *testing.B) {
	w := queuelog.New(queuelog.Config{Delay: time.Hour})
	defer w.Close()
	ids := make([]string, 10_000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	log, since := config(), time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Tell(account, ids[i%len(ids)], log, logKey, queued(i, busy, since))
	}
}
