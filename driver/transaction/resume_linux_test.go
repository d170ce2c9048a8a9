package transaction_test

import (
	"bytes"
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

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// lasting is a fakeDriver whose steps another process can follow.
type lasting struct {
	*fakeDriver
	onReattach func(ctx context.Context, s *driver.Step, out io.Writer, begun []driver.Resource) (*driver.Result, error)
}

func (w *lasting) Reattach(
	ctx context.Context, _ *driver.Environment, s *driver.Step, out io.Writer, _ driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	return w.onReattach(ctx, s, out, begun)
}

// life runs the processes of a delegate one after the other, with one infrastructure.
type life struct {
	t      *testing.T
	w      *lasting
	ledger string
	memory string
	dead   map[*stages]bool
}

func newLife(t *testing.T) *life {
	t.Helper()
	memory, err := os.MkdirTemp("/dev/shm", "dlite-resume-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	l := &life{t: t, w: &lasting{fakeDriver: newFakeDriver()}, ledger: t.TempDir(), memory: memory, dead: map[*stages]bool{}}
	l.w.onReattach = func(context.Context, *driver.Step, io.Writer, []driver.Resource) (*driver.Result, error) {
		return nil, driver.ErrLost
	}
	return l
}

// process starts the delegate. kill ends it as kill -9 does.
func (l *life) process(opts ...transaction.Option) *stages {
	l.t.Helper()
	s := unmanagedStages(l.t, l.w.fakeDriver, l.ledger, opts...)
	s.Stages = transaction.New(l.w, append([]transaction.Option{
		transaction.WithLedger(l.ledger), transaction.WithSlots(s.slots), transaction.WithLog(s.logs.open),
		transaction.WithResume(l.memory), transaction.WithInFlight(0),
		transaction.WithInfra(transaction.Local, transaction.VM),
	}, opts...)...)
	require.NoError(l.t, s.Recover(l.t.Context()))
	l.t.Cleanup(func() {
		if !l.dead[s] {
			_ = s.Close(context.Background()) // a test that needs the error closes the stages itself
		}
	})
	return s
}

func (l *life) kill(s *stages) {
	l.t.Helper()
	l.dead[s] = true
	require.NoError(l.t, s.Crash())
}

// notes returns the files in memory.
func (l *life) notes() []string {
	l.t.Helper()
	paths, err := filepath.Glob(filepath.Join(l.memory, "*", "*"))
	require.NoError(l.t, err)
	return paths
}

// give sends a task to the handler of its type.
func give(s *stages, id, typ string, data any) *task.Response {
	b, err := json.Marshal(data)
	require.NoError(s.t, err)
	r, _ := task.Serve(s.t.Context(), s.Routes()[typ], &task.Task{ID: id, Type: typ, Data: b})
	return r
}

func step(id string) stage.ExecuteRequest {
	return stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: id, LogKey: id}}
}

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

// Rule T4: a late step of a transaction that a restart has ended learns the reason.
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

// The record of an open transaction contains no secret.
func TestTheRecordOfAnOpenTransactionHoldsNoSecret(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	s := l.process()
	give(s, "t1", "local_init", stage.InitRequest{GroupID: "tx", Envs: map[string]string{"TOKEN": hidden}, Secrets: []string{hidden}})
	require.Len(t, s.records(), 1)
	b, err := os.ReadFile(s.records()[0])
	require.NoError(t, err)
	assert.NotContains(t, string(b), hidden)
	require.Len(t, l.notes(), 1)
	info, err := os.Stat(l.notes()[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	b, err = os.ReadFile(l.notes()[0])
	require.NoError(t, err)
	assert.NotContains(t, string(b), hidden)
	assert.NotContains(t, string(b), "TOKEN", "the notes are encrypted")
}

// Rule S5: a process that may write to the notes of one transaction cannot give it those of another one.
func TestNotesOfAnotherTransactionAreNotRead(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	s := l.process()
	for _, id := range []string{"a", "b"} {
		give(s, "t"+id, "local_init", stage.InitRequest{GroupID: id, Envs: map[string]string{"OF": id}})
	}
	require.Len(t, l.notes(), 2)
	b, err := os.ReadFile(l.notes()[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(l.notes()[1], b, 0o600))
	l.kill(s)
	second := l.process()
	var seen []string
	l.w.onExecute = func(_ context.Context, env *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		seen = append(seen, env.ID+env.Envs["OF"])
		return &driver.Result{}, nil
	}
	for _, id := range []string{"a", "b"} {
		e := step("s" + id)
		e.GroupID = id
		give(second, "e"+id, "local_execute", e)
		require.Equal(t, stage.Success, statusOf(second.cleanup(id)))
	}
	assert.NotContains(t, seen, "ab")
	assert.NotContains(t, seen, "ba")
	assert.Len(t, seen, 2)
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

// Rule S5: a directory on a disk is not used as one in memory.
func TestNothingIsKeptOnADisk(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.memory = "/etc" // the file system of t.TempDir may be in memory
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	paths, err := filepath.Glob("/etc/dlite-*")
	require.NoError(t, err)
	assert.Empty(t, paths)
	l.kill(first)
	assert.Zero(t, l.process().Open())
	assert.Empty(t, l.w.left())
}

// The content of a directory that another user has created is not trusted.
func TestNotesOfAnotherUserAreNotTrusted(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	l.kill(first)
	dirs, err := filepath.Glob(filepath.Join(l.memory, "*"))
	require.NoError(t, err)
	require.Len(t, dirs, 1)
	require.NoError(t, os.Rename(dirs[0], dirs[0]+"-moved"))
	require.NoError(t, os.Symlink(dirs[0]+"-moved", dirs[0]))
	assert.Zero(t, l.process().Open())
	assert.Empty(t, l.w.left())
}

func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing arrived in time")
	}
	return v
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
