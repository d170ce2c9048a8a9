package drivertest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

func exitCases() []testCase {
	list := []testCase{
		{
			name: "a program that does not exist fails by its name", rule: "D3, D4",
			run: func(s *stand) {
				tx := s.begin()
				_, err := tx.fails(tx.step("step", stage.Run{Entrypoint: []string{"no-such-program"}}))
				require.ErrorContains(s, err, "no-such-program")
				require.Empty(s, s.site.Running(s, tx.env.ID))
			},
		},
		{
			name: "out of memory differs from other ends", rule: "D3", needs: Capabilities{OOM: true},
			run: func(s *stand) {
				res, out := s.runOutOfMemory("tail /dev/zero")
				require.True(s, res.OOMKilled, out)
				require.NotZero(s, res.ExitCode, out)
			},
		},
		{
			name: "out of memory of a child fails a step that continues", rule: "D3", needs: Capabilities{OOM: true},
			run: func(s *stand) {
				res, out := s.runOutOfMemory("tail /dev/zero; exit 0")
				require.True(s, res.OOMKilled, out)
				require.NotZero(s, res.ExitCode, out)
			},
		},
		{
			name: "a step that failed does not stop the next one", rule: "T1",
			run: func(s *stand) {
				tx := s.begin()
				res, _ := tx.run(tx.sh("one", "echo kept > file; exit 9"))
				require.Equal(s, 9, res.ExitCode)
				require.Equal(s, "kept\n", tx.out("cat file"))
			},
		},
	}
	for _, code := range []int{0, 1, 3, 255} {
		list = append(list, exitCase(fmt.Sprintf("exit code %d is returned", code), fmt.Sprintf("exit %d", code), code))
	}
	return append(list,
		exitCase("exit code 127 comes from a shell that misses a command", "no-such-command", 127),
		exitCase("exit code 126 comes from a shell that may not run a file", "touch file; ./file", 126),
		// The first process of a container cannot kill itself. Its shell returns the same
		// exit code for a child that was killed.
		exitCase("SIGKILL is reported as 137", `[ $$ = 1 ] && { sh -c 'kill -KILL $$'; exit $?; }; kill -KILL $$`, 137),
		exitCase("SIGTERM is reported as 143", `[ $$ = 1 ] && { sh -c 'kill -TERM $$'; exit $?; }; kill -TERM $$`, 143),
	)
}

// runOutOfMemory runs a script that exceeds its memory limit. Engines get an event for
// it, and lose the event if the control group of the container vanishes first.
// Therefore runOutOfMemory tries up to three times.
func (s *stand) runOutOfMemory(script string) (res *driver.Result, out string) {
	step := s.sh("step", script)
	step.MemLimit, step.MemSwapLimit = 16<<20, 16<<20
	for range 3 {
		if res, out = s.begin(announcing(step)).run(step); res.OOMKilled {
			break
		}
	}
	return res, out
}

func exitCase(name, script string, code int) testCase {
	return testCase{name: name, rule: "D3, D4", joint: true, run: func(s *stand) {
		res, out := s.begin().run(s.sh("step", script))
		require.Equal(s, code, res.ExitCode, out)
		require.False(s, res.OOMKilled)
		require.False(s, res.Detached)
	}}
}

func outputCases() []testCase {
	return []testCase{
		outputCase("a silent step has no output", "true", ""),
		outputCase("standard output arrives", "echo out", "out\n"),
		outputCase("standard error arrives", "echo err >&2", "err\n"),
		outputCase("the last line needs no newline", "echo one; printf two", "one\ntwo"),
		outputCase("the last line of standard error needs no newline", "printf end >&2", "end"),
		outputCase("output is bytes and not text", `printf '\000\001\033[31m\r\377\376\200\n\000'`, "\x00\x01\x1b[31m\r\xff\xfe\x80\n\x00"),
		outputCase("five megabytes arrive whole", "seq 1 800000", sequence(800000)),
		outputCase("a line of a megabyte arrives whole", `head -c 1048576 /dev/zero | tr '\000' x; echo .`, strings.Repeat("x", 1<<20)+".\n"),
		outputCase("the tail of a failing step arrives", "seq 1 5000; exec 1>&-; exit 1", sequence(5000)),
		outputCase("a child may finish its output after the shell", `(sleep 0.2; echo late) & echo early; wait`, "early\nlate\n"),
		{
			name: "each stream keeps its order", rule: "D1", joint: true,
			run: func(s *stand) {
				_, out := s.begin().run(s.sh("step", `i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done`))
				var stdout, stderr, want strings.Builder
				for line := range strings.Lines(out) {
					if strings.HasPrefix(line, "o") {
						stdout.WriteString(line[1:])
					} else {
						stderr.WriteString(line[1:])
					}
				}
				for i := range 300 {
					fmt.Fprintln(&want, i)
				}
				require.Equal(s, want.String(), stdout.String())
				require.Equal(s, want.String(), stderr.String())
			},
		},
		{
			name: "both streams keep the order of their writes", rule: "D1", joint: true, needs: Capabilities{Interleaved: true},
			run: func(s *stand) {
				_, out := s.begin().run(s.sh("step", `i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done`))
				var want strings.Builder
				for i := range 300 {
					fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
				}
				require.Equal(s, want.String(), out)
			},
		},
		{
			name: "output arrives while the step runs", rule: "D1, L2",
			run: func(s *stand) {
				tx := s.begin()
				r := tx.start(tx.sh("step", `echo first; while [ ! -e go ]; do sleep 0.05; done; echo second`))
				r.out.WaitFor(s, "first\n")
				tx.runs()
				tx.out("touch go")
				end := r.wait()
				require.NoError(s, end.err)
				require.Equal(s, "first\nsecond\n", r.out.String())
			},
		},
		{
			name: "a slow reader gets all of it", rule: "D1, L2", joint: true,
			run: func(s *stand) {
				tx := s.begin()
				// The delay is longer than the time that drivers wait for output after the
				// end of a step.
				text := NewOutput()
				out := &slowOutput{delay: 2500 * time.Millisecond, to: text}
				res, err := tx.execute(s.Context(), tx.sh("step", `head -c 60000 /dev/zero | tr '\000' x; echo end`), out)
				require.NoError(s, err)
				require.Zero(s, res.ExitCode)
				require.Equal(s, strings.Repeat("x", 60000)+"end\n", text.String())
			},
		},
		{
			name: "a reader that fails does not fail the step", rule: "D1", joint: true,
			run: func(s *stand) {
				tx := s.begin()
				res, err := tx.execute(s.Context(), tx.sh("step", "seq 1 50000; exit 4"), brokenOutput{})
				require.NoError(s, err)
				require.Equal(s, 4, res.ExitCode)
			},
		},
		{
			name: "nothing is written after the step has ended", rule: "D1",
			run: func(s *stand) {
				tx := s.begin()
				out := NewOutput()
				res, err := tx.execute(s.Context(), tx.sh("step", `(while :; do echo more; sleep 0.01; done) & echo done`), out)
				out.seal()
				require.NoError(s, err)
				require.Zero(s, res.ExitCode)
				tx.cleanup()
				require.Contains(s, out.String(), "done\n")
				require.False(s, out.wasLate(), "the output was used after Execute had returned")
			},
		},
	}
}

func outputCase(name, script, want string) testCase {
	return testCase{name: name, rule: "D1, D3, D4", joint: true, run: func(s *stand) {
		_, out := s.begin().run(s.sh("step", script))
		if len(want) > 1000 {
			require.Len(s, out, len(want))
			require.True(s, want == out, "the output is not what the step wrote")
			return
		}
		require.Equal(s, want, out)
	}}
}

// sequence returns the output of the program seq.
func sequence(n int) string {
	b := make([]byte, 0, 7*n)
	for i := 1; i <= n; i++ {
		b = append(strconv.AppendInt(b, int64(i), 10), '\n')
	}
	return string(b)
}

// slowOutput delays the first write, or each one.
type slowOutput struct {
	delay  time.Duration
	always bool
	to     *Output
}

func (o *slowOutput) Write(p []byte) (int, error) {
	<-time.After(o.delay)
	if !o.always {
		o.delay = 0
	}
	return o.to.Write(p)
}

type brokenOutput struct{}

func (brokenOutput) Write([]byte) (int, error) { return 0, errors.New("no reader") }
