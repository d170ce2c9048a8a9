package drivertest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// serve returns a step that answers on port 8080 with a line. When it listens, it
// prints its address and "up".
func (s *stand) serve(id, line string) stage.Step {
	step := s.sh(id, `mkdir "$HARNESS_SCRATCH_DIR/www" && echo `+line+` > "$HARNESS_SCRATCH_DIR/www/index.html" &&
		httpd -p 8080 -h "$HARNESS_SCRATCH_DIR/www" && hostname -i && echo up && sleep 600`)
	step.Detach = true
	return step
}

func parallelCases() []testCase {
	return []testCase{
		{
			name: "the steps of a transaction run in parallel", rule: "T1",
			run: func(s *stand) {
				tx := s.begin()
				// Each step waits for the other one: they cannot run in sequence.
				script := `touch "$0"; while [ ! -e "$1" ]; do sleep 0.05; done; echo met`
				a, b := tx.start(tx.sh("a", script, "a", "b")), tx.start(tx.sh("b", script, "b", "a"))
				for _, r := range []*running{a, b} {
					end := r.wait()
					require.NoError(s, end.err)
					require.Zero(s, end.res.ExitCode)
					require.Equal(s, "met\n", r.out.String())
				}
			},
		},
		{
			name: "parallel steps of one id have separate outputs", rule: "T1, D5",
			run: func(s *stand) {
				tx := s.begin()
				var steps []*running
				for i := range 4 {
					steps = append(steps, tx.start(tx.sh("step", fmt.Sprintf(`echo line %d; echo N=%d >> $DRONE_OUTPUT; echo %d > $PLUGIN_ARTIFACT_FILE; exit %d`, i, i, i, i))))
				}
				for i, r := range steps {
					end := r.wait()
					require.NoError(s, end.err)
					require.Equal(s, i, end.res.ExitCode)
					require.Equal(s, fmt.Sprintf("line %d\n", i), r.out.String())
					require.Equal(s, values{"N": fmt.Sprint(i)}, end.res.Outputs)
					require.Equal(s, fmt.Sprintf("%d\n", i), string(end.res.Artifact))
				}
			},
		},
		{
			name: "concurrent inits create separate transactions", rule: "T1, T8",
			run: func(s *stand) {
				var txs []*transaction
				done := make(chan error, 4)
				for range 4 {
					tx := s.prepare()
					txs = append(txs, tx)
					go func() { done <- tx.init() }()
				}
				for range txs {
					require.NoError(s, receive(s, done))
				}
				for _, tx := range txs {
					require.Equal(s, "file\n", tx.out("touch file; ls -A"))
				}
			},
		},
		{
			name: "transactions have separate workspaces", rule: "T8",
			run: func(s *stand) {
				a, b := s.begin(), s.begin()
				a.out("echo secret > file")
				require.Empty(s, b.out("ls -A"))
				require.Equal(s, "file\n", a.out("ls -A"))
			},
		},
		{
			name: "transactions do not see each other's files", rule: "T8, S5", needs: Capabilities{Separated: true},
			run: func(s *stand) {
				const secret = "visibly-fake-secret-of-a"
				a := s.begin(func(env *driver.Environment) { env.Envs["OF_A"] = secret })
				b := s.begin()
				step := a.sh("service", `echo "$OF_A" > file; echo "$OF_A" > "$HARNESS_SCRATCH_DIR/file"; echo "$OF_A" > "$DRONE_OUTPUT"
					for d in /tmp /var/tmp /dev/shm; do echo "$OF_A" > "$d/of-a-$0"; done 2>/dev/null
					echo "paths: $PWD $HARNESS_SCRATCH_DIR $DRONE_OUTPUT :end"; sleep 600`, secret)
				out := a.detach(step)
				out.WaitFor(s, ":end\n")
				_, list, _ := strings.Cut(out.String(), "paths: ") // a driver may have written a notice
				paths := strings.Fields(strings.TrimSuffix(list, ":end\n"))
				require.Len(s, paths, 3)
				seen := b.out(`cd /; cat "$0/file" "$1/file" "$2" "$0"/../../*/workspace/file /tmp/of-a-* /var/tmp/of-a-* /dev/shm/of-a-* \
					/dev/shm/*/*.notes /dev/shm/dlite-*/steps/*/out/* /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/cwd/file 2>/dev/null |
					tr '\0' '\n' | grep -c "fake-secret-of-[a]"; true`, paths...)
				require.Equal(s, "0\n", seen)
				require.Equal(s, secret+"\n", a.out("cat file"))
			},
		},
		{
			name: "two transactions may have the same network id", rule: "T8",
			run: func(s *stand) {
				a := s.begin()
				b := s.begin(func(env *driver.Environment) { env.Network = a.env.Network })
				a.out("echo secret > file")
				require.Empty(s, b.out("ls -A"))
				a.cleanup()
				require.Empty(s, b.out("ls -A"))
			},
		},
		{
			name: "transactions do not see each other's variables", rule: "T8",
			run: func(s *stand) {
				a := s.begin(func(env *driver.Environment) { env.Envs["OF_A"] = "1" })
				b := s.begin(func(env *driver.Environment) { env.Envs["OF_B"] = "1" })
				require.Equal(s, "1,none\n", a.out(`echo ${OF_A-none},${OF_B-none}`))
				require.Equal(s, "none,1\n", b.out(`echo ${OF_A-none},${OF_B-none}`))
			},
		},
		{
			name: "one step id runs in two transactions at once", rule: "T8",
			run: func(s *stand) {
				a, b := s.begin(), s.begin()
				script := "echo up; while [ ! -e go ]; do sleep 0.05; done; echo went; sleep 600"
				one, two := a.detach(a.sh("service", script)), b.detach(b.sh("service", script))
				a.out("touch go")
				one.WaitFor(s, "went\n")
				two.WaitFor(s, "up\n")
				a.cleanup()
				b.out("touch go")
				two.WaitFor(s, "went\n")
			},
		},
		{
			name: "ids of a step may be anything", rule: "D1",
			run: func(s *stand) {
				tx := s.begin()
				for _, id := range []string{"With Space", "../../etc", "ünïcode/🙂", strings.Repeat("long", 100), "-rf", ""} {
					res, out := tx.run(tx.sh(id, "echo ran; echo A=1 >> $DRONE_OUTPUT"))
					require.Equal(s, "ran\n", out, id)
					require.Equal(s, values{"A": "1"}, res.Outputs, id)
				}
			},
		},
		{
			name: "a name refers to a step of the same transaction", rule: "T8", needs: Capabilities{Names: true},
			run: func(s *stand) {
				begin := func(line string) *transaction {
					step := s.serve("service", line)
					step.Detach = true
					tx := s.begin(announcing(step))
					tx.detach(step).WaitFor(s, "up\n")
					return tx
				}
				a, b := begin("of-a"), begin("of-b")
				require.Equal(s, "of-a\n", a.out("wget -q -O - http://service:8080/"))
				require.Equal(s, "of-b\n", b.out("wget -q -O - http://service:8080/"))
			},
		},
		{
			name: "transactions do not reach each other", rule: "T8", needs: Capabilities{Names: true, IsolatedNetwork: true},
			run: func(s *stand) {
				a, b := s.begin(), s.begin()
				out := a.detach(s.serve("service", "page"))
				out.WaitFor(s, "up\n")
				address, _, _ := strings.Cut(out.String(), "\n")
				require.Equal(s, "page\n", a.out("timeout 30 wget -q -O - http://"+address+":8080/"))
				require.Equal(s, "end\n", b.out("timeout 2 wget -q -O - http://service:8080/ 2>/dev/null; timeout 2 wget -q -O - http://"+address+":8080/ 2>/dev/null; echo end"))
			},
		},
	}
}
