package drivertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// tree is a script that starts processes that are hard to find and stop: grandchildren,
// processes in other sessions, and processes that ignore SIGTERM.
const tree = `sleep 600 & (trap '' TERM HUP INT; sleep 600) & setsid sleep 600 & setsid sh -c 'trap "" TERM; sleep 600 & wait' & `

var errUnwanted = errors.New("the step was aborted")

func stopCases() []testCase {
	return []testCase{
		{
			name: "a time-out is reported as a time-out", rule: "D3, D4, P4",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", "sleep 600")
				step.Timeout = 1
				begin := time.Now()
				_, err := tx.fails(step)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				took := time.Since(begin)
				require.Greater(s, took, 900*time.Millisecond, "the clock of a machine may be some percent fast")
				require.Less(s, took, 30*time.Second)
			},
		},
		{
			name: "a time-out kills all processes of the step", rule: "D3, D4, T7",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", tree+"wait")
				step.Timeout = 2
				_, err := tx.fails(step)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "a time-out that is not reached changes nothing", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				step := s.sh("step", "echo done; exit 3")
				step.Timeout = 50
				res, out := s.begin().run(step)
				require.Equal(s, 3, res.ExitCode)
				require.Equal(s, "done\n", out)
			},
		},
		{
			name: "an abort kills all processes of the step", rule: "T7",
			run: func(s *stand) {
				tx := s.begin()
				r := tx.start(tx.sh("step", tree+"echo started; wait"))
				r.out.WaitFor(s, "started")
				tx.runs()
				r.stop(errUnwanted)
				end := r.wait()
				require.ErrorIs(s, end.err, context.Canceled)
				require.ErrorContains(s, end.err, errUnwanted.Error())
				require.Nil(s, end.res)
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "an abort kills a step that ignores SIGTERM", rule: "T7",
			run: func(s *stand) {
				tx := s.begin()
				r := tx.start(tx.sh("step", `trap '' TERM INT HUP; echo started; while :; do sleep 1; done`))
				r.out.WaitFor(s, "started")
				r.stop(nil)
				require.ErrorIs(s, r.wait().err, context.Canceled)
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "a soft stop begins with SIGTERM and ends with the step", rule: "T7",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", `trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.05; done`)
				step.SoftStop = true
				r := tx.start(step)
				r.out.WaitFor(s, "started")
				begin := time.Now()
				r.stop(nil)
				require.ErrorIs(s, r.wait().err, context.Canceled)
				require.Equal(s, 1, strings.Count(r.out.String(), "bye\n"), r.out.String()) // the shell may also report the end of its child
				require.Less(s, time.Since(begin), 8*time.Second, "the whole grace was waited for")
			},
		},
		{
			name: "without a soft stop no SIGTERM is sent", rule: "T7",
			run: func(s *stand) {
				tx := s.begin()
				r := tx.start(tx.sh("step", `trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.05; done`))
				r.out.WaitFor(s, "started")
				r.stop(nil)
				require.ErrorIs(s, r.wait().err, context.Canceled)
				require.Equal(s, "started\n", r.out.String())
			},
		},
		{
			name: "output from before an abort arrives", rule: "D1",
			run: func(s *stand) {
				tx := s.begin()
				r := tx.start(tx.sh("step", `seq 1 2000; printf 'no newline'; sleep 600`))
				r.out.WaitFor(s, "no newline")
				r.stop(nil)
				require.ErrorIs(s, r.wait().err, context.Canceled)
				require.Equal(s, sequence(2000)+"no newline", r.out.String())
			},
		},
		{
			name: "the end of a step ends its background processes", rule: "D4",
			run: func(s *stand) {
				tx := s.begin()
				begin := time.Now()
				res, out := tx.run(tx.sh("step", tree+"echo done"))
				require.Zero(s, res.ExitCode)
				require.Equal(s, "done\n", out)
				require.Less(s, time.Since(begin), 30*time.Second)
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "a stopped step leaves only the transaction", rule: "T2",
			run: func(s *stand) {
				tx := s.begin()
				stopped := func() []string {
					r := tx.start(tx.sh("step", "echo started; sleep 600"))
					r.out.WaitFor(s, "started")
					tx.runs()
					r.stop(nil)
					require.Error(s, r.wait().err)
					require.Empty(s, s.site.Running(s, tx.env.ID))
					return s.site.Remains(s, tx.env.ID)
				}
				first := stopped() // some resources of a first step belong to the transaction
				require.NotEmpty(s, first)
				require.ElementsMatch(s, first, stopped())
			},
		},
		{
			name: "a stopped step does not stop other steps", rule: "T7, T8",
			run: func(s *stand) {
				tx, other := s.begin(), s.begin()
				script := `echo started; while [ ! -e go ]; do sleep 0.05; done; echo end`
				beside, elsewhere := tx.start(tx.sh("step", script)), other.start(s.sh("step", script))
				r := tx.start(tx.sh("step", "echo started; sleep 600"))
				for _, one := range []*running{beside, elsewhere, r} {
					one.out.WaitFor(s, "started")
				}
				r.stop(nil)
				require.Error(s, r.wait().err)
				tx.out("touch go")
				other.out("touch go")
				for _, one := range []*running{beside, elsewhere} {
					end := one.wait()
					require.NoError(s, end.err)
					require.Zero(s, end.res.ExitCode)
					require.Equal(s, "started\nend\n", one.out.String())
				}
			},
		},
		{
			name: "a step whose context has ended does not start", rule: "D1",
			run: func(s *stand) {
				tx := s.begin()
				records := tx.ledger.count()
				ctx, cancel := context.WithCancel(s.Context())
				cancel()
				out := NewOutput()
				res, err := tx.execute(ctx, tx.sh("step", "echo RAN"), out)
				require.ErrorIs(s, err, context.Canceled)
				require.Nil(s, res)
				require.Empty(s, out.String())
				require.Equal(s, records, tx.ledger.count())
			},
		},
		{
			name: "a step whose deadline has passed is reported as timed out", rule: "D1, P4",
			run: func(s *stand) {
				tx := s.begin()
				ctx, cancel := context.WithTimeoutCause(s.Context(), 500*time.Millisecond, errUnwanted)
				defer cancel()
				_, err := tx.execute(ctx, tx.sh("step", "sleep 600"), NewOutput())
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
	}
}

func detachedCases() []testCase {
	return []testCase{
		{
			name: "a detached step is answered at once and continues", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				out := tx.detach(tx.sh("service", `echo up; while [ ! -e go ]; do sleep 0.05; done; echo went; sleep 600`))
				out.WaitFor(s, "up\n")
				tx.runs()
				tx.out("touch go")
				out.WaitFor(s, "went\n")
			},
		},
		{
			name: "a cleanup ends a detached step and all its processes", rule: "D2, T3",
			run: func(s *stand) {
				tx := s.begin()
				out := tx.detach(tx.sh("service", tree+"echo up; wait"))
				out.WaitFor(s, "up\n")
				tx.cleanup()
				tx.gone()
			},
		},
		{
			name: "the output of a detached step is not used after a cleanup", rule: "D1",
			run: func(s *stand) {
				other := s.driver()
				tx := s.begin()
				step := tx.sh("service", `long=$(seq 1 1000); while :; do echo "$long line"; done`)
				step.Detach = true
				// The reader is slow, so there is always more output to write.
				out := NewOutput()
				_, err := tx.execute(s.Context(), step, &slowOutput{delay: 50 * time.Millisecond, always: true, to: out})
				require.NoError(s, err)
				out.WaitFor(s, "line\n")
				tx.cleanup()
				out.seal()
				if c, ok := tx.d.(interface{ Close() error }); ok {
					require.NoError(s, c.Close())
					tx.d = other // a closed driver must not be called
				}
				require.False(s, out.wasLate())
			},
		},
		{
			name: "several detached steps run at once", rule: "D2",
			run: func(s *stand) {
				var steps []stage.Step
				var announced []func(*driver.Environment)
				for _, id := range []string{"db", "cache", "queue"} {
					step := s.sh(id, `echo `+id+` up; while [ ! -e go ]; do sleep 0.05; done; echo `+id+` went; sleep 600`)
					step.Detach = true
					steps, announced = append(steps, step), append(announced, announcing(step))
				}
				tx := s.begin(announced...)
				var outs []*Output
				for _, step := range steps {
					outs = append(outs, tx.detach(step))
				}
				tx.out("touch go")
				for i, id := range []string{"db", "cache", "queue"} {
					outs[i].WaitFor(s, id+" went\n")
					require.Equal(s, id+" up\n"+id+" went\n", outs[i].String())
				}
			},
		},
		{
			name: "a detached step outlives the call that started it", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				ctx, cancel := context.WithCancel(s.Context())
				step := tx.sh("service", `while [ ! -e go ]; do sleep 0.05; done; echo went; sleep 600`)
				step.Detach = true
				out := NewOutput()
				res, err := tx.d.Execute(ctx, tx.env, &driver.Step{Step: step}, out, tx.ledger)
				require.NoError(s, err)
				require.True(s, res.Detached)
				cancel()
				tx.out("touch go")
				out.WaitFor(s, "went\n")
			},
		},
		{
			name: "a detached step has no time-out", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("service", `echo up; sleep 1.5; echo still; sleep 600`)
				step.Timeout = 1
				out := tx.detach(step)
				out.WaitFor(s, "still\n")
			},
		},
		{
			name: "a detached step may end by itself", rule: "D2",
			run: func(s *stand) {
				step := s.sh("service", `echo up; printf tail; exit 3`)
				step.Detach = true
				tx := s.begin(announcing(step))
				out := tx.detach(step)
				out.WaitFor(s, "tail")
				require.Equal(s, "up\ntail", out.String())
				tx.cleanup()
			},
		},
		{
			name: "a detached step is answered when it is ready", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("service", "sleep 0.5; echo getting ready; touch ready; sleep 600")
				step.Ready = &stage.Ready{Command: []string{"test", "-e", "ready"}, IntervalMillis: 50}
				out := tx.detach(step)
				tx.out("test -e ready")
				out.WaitFor(s, "getting ready\n") // output arrives while the readiness probe runs
			},
		},
		{
			name: "a detached step that is not ready in time is stopped", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("service", tree+"wait")
				step.Detach = true
				step.Ready = &stage.Ready{Command: []string{"false"}, Timeout: 1}
				_, err := tx.fails(step)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "a detached step that ends before it is ready fails at once", rule: "D2",
			run: func(s *stand) {
				step := s.sh("service", "echo what went wrong; exit 7")
				step.Detach = true
				step.Ready = &stage.Ready{Command: []string{"false"}, Timeout: 50}
				tx := s.begin(announcing(step))
				begin := time.Now()
				out, err := tx.fails(step)
				require.NotErrorIs(s, err, context.DeadlineExceeded)
				require.Equal(s, "what went wrong\n", out)
				require.Less(s, time.Since(begin), 30*time.Second)
			},
		},
		{
			name: "a detached step that cannot start is an error", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("service", "true")
				step.Detach, step.Run.Entrypoint = true, []string{"no-such-program"}
				_, err := tx.fails(step)
				require.ErrorContains(s, err, "no-such-program")
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "a detached step is reachable by its id and its aliases", rule: "D2", needs: Capabilities{Names: true},
			run: func(s *stand) {
				step := s.serve("service", "page")
				step.Detach, step.NetworkAliases = true, []string{"web", "www.internal"}
				tx := s.begin(announcing(step))
				tx.detach(step).WaitFor(s, "up\n")
				for _, name := range []string{"service", "web", "www.internal"} {
					require.Equal(s, "page\n", tx.out("wget -q -O - http://"+name+":8080/"), name)
				}
			},
		},
	}
}
