package transaction_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task/stage"
)

// docs/protocol.md, section 5: a step whose log_config names no log service uses the one of the init, also
// after a restart of the delegate.
func TestAStepWithoutALogServiceUsesTheOneOfTheInit(t *testing.T) {
	t.Parallel()
	var targets []logger.StreamConfig
	spy := transaction.WithLog(func(_ context.Context, target logger.StreamConfig) logger.TaskLog {
		targets = append(targets, target)
		return closer(func(context.Context) error { return nil })
	})
	of := func(url string) *stage.LogConfig { return &stage.LogConfig{URL: url, Token: "visibly-fake-token"} }
	execute := func(s *stages, id string, cfg *stage.LogConfig) {
		e := step(id)
		e.LogConfig = cfg
		require.Equal(t, stage.Success, statusOf(give(s, id, "local_execute", e)))
	}
	l := newLife(t)
	first := l.process(spy)
	give(first, "init", "local_init", stage.InitRequest{GroupID: "tx", LogConfig: of("http://init")})
	execute(first, "none", nil)
	execute(first, "empty", &stage.LogConfig{})
	execute(first, "own", of("http://step"))
	l.kill(first)
	second := l.process(spy)
	execute(second, "later", &stage.LogConfig{})
	require.Equal(t, stage.Success, statusOf(second.cleanup("tx")))
	var urls []string
	for _, target := range targets {
		assert.Equal(t, "visibly-fake-token", target.Token)
		urls = append(urls, target.Key+" "+target.URL)
	}
	assert.Equal(t, []string{"none http://init", "empty http://init", "own http://step", "later http://init"}, urls)
}

// Rule T4: if a restart has ended a transaction, the answer to a late step has the reason.
func TestALateStepLearnsOfTheRestart(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	first := l.process()
	give(first, "init", "local_init", stage.InitRequest{GroupID: "tx"})
	l.kill(first)
	for _, path := range l.notes() {
		require.NoError(t, os.Remove(path))
	}
	second := l.process()
	assert.Contains(t, give(second, "late", "local_execute", step("one")).Error, "transaction tx has been cleaned up: ")
	assert.Contains(t, give(second, "later", "local_execute", step("one")).Error, "was restarted while it ran")
	require.Equal(t, stage.Success, statusOf(give(second, "again", "local_init", stage.InitRequest{GroupID: "tx"})), "it may begin again")
}

// Rule T5: when the delegate is killed, the next process follows the running step with the
// same log writer. It does not run the step again.
func TestAResumedStepContinues(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	var executed atomic.Int32
	running, never := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(never) })
	l.w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		executed.Add(1)
		close(running)
		<-never
		return nil, driver.ErrLost
	}
	targets := make(chan logger.StreamConfig, 2)
	watch := transaction.WithLog(func(_ context.Context, target logger.StreamConfig) logger.TaskLog {
		targets <- target
		return newLogs().open(t.Context(), target)
	})
	first := l.process(watch)
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	go give(first, "t2", "local_execute", step("one"))
	receive(t, running)
	l.kill(first)

	l.w.onReattach = func(_ context.Context, s *driver.Step, out io.Writer, begun []driver.Resource) (*driver.Result, error) {
		assert.Equal(t, []driver.Resource{{Kind: "process", ID: "tx/one"}}, begun)
		_, _ = io.WriteString(out, "all of it\n")
		return &driver.Result{ExitCode: 3, Outputs: map[string]string{"of": s.ID}}, nil
	}
	r := give(l.process(watch), "t2", "local_execute", step("one"))
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), `"exit_code":3`)
	assert.Contains(t, string(r.Data), `"of":"one"`)
	assert.EqualValues(t, 1, executed.Load())
	before, after := receive(t, targets), receive(t, targets)
	assert.NotEmpty(t, before.Writer)
	assert.Equal(t, before.Writer, after.Writer)
	assert.False(t, before.SkipOpeningStream)
	assert.True(t, after.SkipOpeningStream, "its archive has the content of the stream")
}

// Rule T5: a step that cannot be followed fails with the reason. A step that has not begun
// runs.
func TestAStepThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		status stage.Status
		runs   int32
		log    string
	}{
		"lost":      {driver.ErrLost, stage.Failure, 1, driver.ErrLost.Error() + "\n"},
		"not begun": {driver.ErrNotBegun, stage.Success, 2, "ran ******\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			var executed atomic.Int32
			running, never := make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(never) })
			l.w.onExecute = func(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
				if executed.Add(1) == 1 {
					close(running)
					<-never
				}
				_, _ = io.WriteString(out, "ran "+hidden+"\n")
				return &driver.Result{}, nil
			}
			first := l.process()
			give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx", Secrets: []string{hidden}})
			go give(first, "t2", "local_execute", step("one"))
			receive(t, running)
			l.kill(first)
			l.w.onReattach = func(context.Context, *driver.Step, io.Writer, []driver.Resource) (*driver.Result, error) {
				return nil, tt.err
			}
			second := l.process()
			r := give(second, "t2", "local_execute", step("one"))
			assert.Equal(t, tt.status, statusOf(r), string(r.Data))
			assert.Equal(t, tt.runs, executed.Load())
			text, closed := second.logs.get("one")
			assert.Equal(t, tt.log, text)
			assert.True(t, closed)
			assert.Equal(t, stage.Success, statusOf(second.cleanup("tx")))
			assert.Empty(t, l.w.left())
		})
	}
}

// Rule T5: an answer that may be lost is sent again, and the step does not run again.
func TestAnAnswerSurvivesTheDelegate(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	var executed atomic.Int32
	l.w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		executed.Add(1)
		return &driver.Result{Outputs: map[string]string{"k": "v"}}, nil
	}
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	one := give(first, "t2", "local_execute", step("one"))
	l.kill(first)
	assert.JSONEq(t, string(one.Data), string(give(l.process(), "t2", "local_execute", step("one")).Data))
	assert.EqualValues(t, 1, executed.Load())
}

// closingLog blocks at its end until never is closed.
type closingLog struct {
	closing, never chan struct{}
}

func (closingLog) Write(b []byte) (int, error) { return len(b), nil }

func (l closingLog) Close(context.Context) error {
	close(l.closing)
	<-l.never
	return nil
}

// Rules T5, L2: the delegate is killed between the end of a step and the end of its log. The answer is
// the step's own. The next process sends the output again if the driver still has it, and ends the
// log, once.
func TestAStepWhoseLogHadNotEndedHasItsAnswer(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]error{"": driver.ErrLost, "the whole output\n": nil} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			var released atomic.Int32
			result := &driver.Result{ExitCode: 3, Release: func() { released.Add(1) }}
			l.w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
				return result, nil
			}
			log, first := closingLog{make(chan struct{}), make(chan struct{})}, make(chan logger.StreamConfig, 2)
			t.Cleanup(func() { close(log.never) })
			killed := l.process(transaction.WithLog(func(_ context.Context, target logger.StreamConfig) logger.TaskLog {
				first <- target
				return log
			}))
			give(killed, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
			go give(killed, "t2", "local_execute", step("one"))
			receive(t, log.closing)
			assert.Zero(t, released.Load(), "the output may be needed again until the log has ended")
			l.kill(killed)

			l.w.onReattach = func(_ context.Context, s *driver.Step, out io.Writer, begun []driver.Resource) (*driver.Result, error) {
				assert.Equal(t, "one", s.ID)
				assert.Len(t, begun, 1)
				_, _ = io.WriteString(out, output)
				if want != nil {
					return nil, want
				}
				return result, nil
			}
			logs, targets := newLogs(), make(chan logger.StreamConfig, 2)
			second := l.process(transaction.WithLog(func(ctx context.Context, target logger.StreamConfig) logger.TaskLog {
				targets <- target
				return logs.open(ctx, target)
			}))
			before := released.Load() // the killed process may still come to it
			for range 2 {             // the first answer may be lost too
				r := give(second, "t2", "local_execute", step("one"))
				assert.Equal(t, stage.Failure, statusOf(r))
				assert.Contains(t, string(r.Data), `"exit_code":3`)
				assert.NotContains(t, string(r.Data), "not known")
			}
			target := receive(t, targets)
			assert.True(t, target.SkipOpeningStream, "it continues the log of the earlier process")
			if want == nil {
				assert.Equal(t, receive(t, first).Writer, target.Writer, "the log service drops the lines that it has")
				assert.Equal(t, before+1, released.Load())
			} else {
				assert.Empty(t, target.Writer)
			}
			text, closed := logs.get("one")
			assert.Equal(t, output, text)
			assert.True(t, closed)
			assert.Empty(t, targets)
		})
	}
}

// Rule S3: the driver's reason why it cannot follow a step is masked, because it may quote the
// step.
func TestAReasonNotToSurviveIsMasked(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		return &driver.Result{Detached: true}, nil
	}
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx", Secrets: []string{hidden}})
	give(first, "t2", "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "db", Detach: true}})
	l.kill(first)
	l.w.onReattach = func(context.Context, *driver.Step, io.Writer, []driver.Resource) (*driver.Result, error) {
		return nil, errors.New("the step says " + hidden)
	}
	var log bytes.Buffer
	l.process(transaction.WithLogger(zerolog.New(&log)))
	assert.Contains(t, log.String(), "the step says ******")
	assert.NotContains(t, log.String(), hidden)
}
