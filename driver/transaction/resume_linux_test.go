package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task/stage"
)

const hidden = "visibly-fake-and-hidden"

// Rules T5, S5: the exports of a transaction's steps survive the process and are never on a
// disk.
func TestATransactionSurvivesTheDelegate(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.w.onExecute = func(_ context.Context, env *driver.Environment, s *driver.Step, out io.Writer) (*driver.Result, error) {
		_, _ = io.WriteString(out, "token "+env.Envs["TOKEN"]+", made "+env.Envs["MADE"]+"\n")
		return &driver.Result{Env: map[string]string{"MADE": "by " + s.ID}, Secrets: map[string]string{"K": "handed-on-secret"}}, nil
	}
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{
		GroupID: "tx", Envs: map[string]string{"TOKEN": hidden}, Secrets: []string{hidden},
	})
	require.Equal(t, stage.Success, statusOf(give(first, "t2", "local_execute", step("one"))))
	l.kill(first)

	second := l.process()
	assert.Equal(t, 1, second.Open())
	assert.Equal(t, 1, second.slots.Used(), "it counts")
	assert.Empty(t, l.w.cleaned)
	r := give(second, "t3", "local_execute", step("two"))
	require.Equal(t, stage.Success, statusOf(r), string(r.Data))
	text, _ := second.logs.get("two")
	assert.Equal(t, "token ******, made by one\n", text)
	require.Equal(t, stage.Success, statusOf(second.cleanup("tx")))
	assert.Empty(t, l.w.left())
	assert.Empty(t, l.notes())
	assert.Zero(t, second.slots.Used())

	err := filepath.WalkDir(l.ledger, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		assert.NotContains(t, string(b), hidden, path)
		return err
	})
	require.NoError(t, err)
}

// Rule T5: all background steps continue, or the transaction is cleaned up.
func TestBackgroundStepsSurviveTogetherWithTheirTransaction(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"followed": nil, "lost": driver.ErrLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			l.w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
				return &driver.Result{Detached: true}, nil
			}
			first := l.process()
			give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
			give(first, "t2", "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "db", LogKey: "db", Detach: true}})
			l.kill(first)
			l.w.onReattach = func(_ context.Context, s *driver.Step, out io.Writer, _ []driver.Resource) (*driver.Result, error) {
				assert.True(t, s.Detach)
				_, _ = io.WriteString(out, "ready\n")
				return &driver.Result{Detached: true}, err
			}
			second := l.process()
			text, closed := second.logs.get("db")
			assert.Equal(t, "ready\n", text)
			if err != nil {
				assert.True(t, closed)
				assert.Zero(t, second.Open())
				assert.Empty(t, l.w.left())
				assert.Empty(t, l.notes())
				return
			}
			assert.False(t, closed)
			assert.Equal(t, stage.Success, statusOf(second.cleanup("tx")))
			_, closed = second.logs.get("db")
			assert.True(t, closed)
		})
	}
}

// Rules T3, T5: an init that had not ended is cleaned up and may be repeated.
func TestAnInitThatHadNotEndedBeginsAnew(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	inside, never := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(never) })
	l.w.onInit = func(context.Context, *driver.Environment) error {
		close(inside)
		<-never
		return driver.ErrLost
	}
	first := l.process()
	go give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	receive(t, inside)
	l.kill(first)
	l.w.onInit = nil
	second := l.process(transaction.WithInFlight(50 * time.Millisecond)) // its record is kept for that long
	require.NotEmpty(t, l.w.cleaned)
	r := give(second, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	assert.Equal(t, stage.Success, statusOf(r), string(r.Data))
	assert.Equal(t, []string{"network tx"}, l.w.left())
}

// Rules T5, T6: a resumed transaction for which no task comes is cleaned up.
func TestAResumedTransactionWithoutTasksIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*stages, *atomic.Int64){
		"disowned": func(s *stages, _ *atomic.Int64) { s.CleanUpUnclaimed(s.t.Context()) },
		"forgotten": func(s *stages, clock *atomic.Int64) {
			clock.Add(int64(10 * time.Minute))
			ctx, cancel := context.WithCancel(s.t.Context())
			defer cancel()
			s.fake.stubborn = func(driver.Resource) error { cancel(); return nil }
			s.Maintain(ctx, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			first := l.process()
			give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
			give(first, "t1", "local_init", stage.InitRequest{GroupID: "other"})
			l.kill(first)
			var clock atomic.Int64
			clock.Store(time.Now().UnixNano())
			second := l.process(transaction.WithClock(func() time.Time { return time.Unix(0, clock.Load()) }))
			require.Equal(t, stage.Success, statusOf(give(second, "t2", "local_execute",
				stage.ExecuteRequest{GroupID: "other", Step: stage.Step{ID: "x"}})))
			require.Equal(t, 2, second.Open())
			if name == "forgotten" {
				require.Equal(t, stage.Success, statusOf(second.cleanup("other")))
			}
			end(second, &clock)
			assert.NotContains(t, strings.Join(l.w.left(), " "), "tx")
			if name == "disowned" {
				assert.Equal(t, 1, second.Open(), "a task has come for the other one")
			}
		})
	}
}

// Rule T5 and docs/protocol.md section 3: a later process distinguishes the services of an
// init. A repeated init starts none of the services that it knows.
func TestServicesSurviveTheDelegate(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	var started, followed atomic.Int32
	l.w.onExecute = func(_ context.Context, _ *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
		started.Add(1)
		if s.Image == "" {
			return nil, errors.New("it names nothing to run")
		}
		return &driver.Result{Detached: true}, nil
	}
	l.w.onReattach = func(context.Context, *driver.Step, io.Writer, []driver.Resource) (*driver.Result, error) {
		followed.Add(1)
		return &driver.Result{Detached: true}, nil
	}
	s := l.process()
	first := s.send("DLITE_CI_VM_INITIALIZE_TASK", initWithServices)
	require.EqualValues(t, 3, started.Load())
	l.kill(s)
	s = l.process()
	assert.EqualValues(t, 2, followed.Load())
	again := s.send("DLITE_CI_VM_INITIALIZE_TASK", initWithServices)
	assert.EqualValues(t, 3, started.Load())
	var was, is stage.InitResponse
	require.NoError(t, json.Unmarshal(first.Data, &was))
	require.NoError(t, json.Unmarshal(again.Data, &is))
	assert.Equal(t, was.Services, is.Services)
	require.NoError(t, s.Close(t.Context()))
	assert.Empty(t, l.w.left())
}
