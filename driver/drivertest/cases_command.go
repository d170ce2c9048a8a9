package drivertest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// awkward returns arguments and values that a driver with wrong quoting changes.
func awkward() []string {
	return []string{
		"plain", "two words", "", " spaces ", `"double"`, `'single'`, "$HOME", "$(echo evaluated)", "`echo evaluated`", "*", "~", "a\\b",
		"line one\nline two", "tab\there", "ä ß 日本 🙂", "%s%d", "-n", "--", "a=b", "{a,b}", "!history", "#comment", "a;b&c|d", "${{x}} <{y}>",
	}
}

func commandCases() []testCase {
	return []testCase{
		{
			name: "arguments reach a script exactly", rule: "protocol.md 5", joint: true,
			run: func(s *stand) {
				out := s.begin().out(`for a in "$0" "$@"; do printf '[%s]' "$a"; done`, awkward()...)
				require.Equal(s, "["+strings.Join(awkward(), "][")+"]", out)
			},
		},
		{
			name: "arguments reach a program exactly, without a shell", rule: "protocol.md 5", joint: true,
			run: func(s *stand) {
				_, out := s.begin().run(s.step("step", stage.Run{Entrypoint: []string{"printf", "[%s]"}, Command: awkward()}))
				require.Equal(s, "["+strings.Join(awkward(), "][")+"]", out)
			},
		},
		{
			name: "the entrypoint alone is a command line", rule: "protocol.md 5", joint: true,
			run: func(s *stand) {
				_, out := s.begin().run(s.step("step", stage.Run{Entrypoint: []string{"echo", "a", "b"}}))
				require.Equal(s, "a b\n", out)
			},
		},
		{
			name: "a script of a hundred kilobytes runs", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				padding := strings.Repeat("# nothing happens in this line\n", 3300)
				require.Equal(s, "end\n", s.begin().out(padding+"echo end"))
			},
		},
		{
			name: "five thousand arguments arrive", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				args := make([]string, 5000)
				for i := range args {
					args[i] = "argument"
				}
				require.Equal(s, "4999\n", s.begin().out("echo $#", args...))
			},
		},
		{
			name: "a script may be in any language", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				require.Equal(s, "grüße, 世界 🙂\n", s.begin().out("echo 'grüße, 世界 🙂'"))
			},
		},
		{
			name: "standard input is at its end", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				require.Equal(s, "0\n", s.begin().out("cat | wc -c | tr -d ' '"))
			},
		},
		{
			name: "steps share their default working directory", rule: "D2",
			run: func(s *stand) {
				tx := s.begin()
				first := tx.out("pwd; echo content > file")
				require.Equal(s, first+"content\n", tx.out("pwd; cat file"))
			},
		},
		{
			name: "a relative working directory is below the default one", rule: "D3, D4",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("mkdir sub && echo content > sub/file")
				step := tx.sh("step", "cat file; touch here")
				step.WorkingDir = "sub"
				_, out := tx.run(step)
				require.Equal(s, "content\n", out)
				require.Equal(s, "file\nhere\n", tx.out("ls sub"))
			},
		},
		{
			name: "a missing working directory in the workspace is created", rule: "D3, D4",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", "echo content > file")
				step.WorkingDir = "made/for me"
				res, out := tx.run(step)
				require.Zero(s, res.ExitCode, out)
				require.Equal(s, "content\n", tx.out("cat 'made/for me/file'"))
			},
		},
		{
			name: "an absolute working directory is used unchanged", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				step := s.sh("step", "pwd")
				step.WorkingDir = "/"
				_, out := s.begin().run(step)
				require.Equal(s, "/\n", out)
			},
		},
		{
			name: "a step runs as the user and group it names", rule: "D3, D4", joint: true, needs: Capabilities{Users: true},
			run: func(s *stand) {
				step := s.sh("step", "id -u; id -g; id -G")
				step.User = "54321:54322"
				_, out := s.begin().run(step)
				require.Equal(s, "54321\n54322\n54322\n", out)
			},
		},
		{
			name: "a step of another user can use its files and directories", rule: "D3, D4, D5", needs: Capabilities{Users: true},
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("step", `set -e; echo x > file; echo A=1 >> $DRONE_OUTPUT; echo B=2 >> $HARNESS_OUTPUT_SECRET_FILE
					echo C=3 >> $DRONE_ENV; echo d > $PLUGIN_ARTIFACT_FILE; touch $HARNESS_SCRATCH_DIR/x`)
				step.User = "54321:54322"
				res, out := tx.run(step)
				require.Zero(s, res.ExitCode, out)
				require.Equal(s, map[string]string{"A": "1"}, res.Outputs)
				require.Equal(s, map[string]string{"B": "2"}, res.Secrets)
				require.Equal(s, map[string]string{"C": "3"}, res.Env)
				require.Equal(s, "d\n", string(res.Artifact))
				require.Equal(s, "x\n", tx.out("cat file"))
			},
		},
	}
}

func environmentCases() []testCase {
	return []testCase{
		{
			name: "variables of the transaction reach every step", rule: "D1",
			run: func(s *stand) {
				tx := s.begin(func(env *driver.Environment) { env.Envs["SHARED"] = "value" })
				require.Equal(s, "value\n", tx.out(`echo "$SHARED"`))
				require.Equal(s, "value\n", tx.out(`echo "$SHARED"`))
			},
		},
		{
			name: "a variable of the step overrides one of the transaction", rule: "D1",
			run: func(s *stand) {
				tx := s.begin(func(env *driver.Environment) { env.Envs["SHARED"] = "transaction" })
				step := tx.sh("step", `echo "$SHARED"`)
				step.Environment = map[string]string{"SHARED": "step"}
				_, out := tx.run(step)
				require.Equal(s, "step\n", out)
			},
		},
		{
			name: "variables arrive exactly", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				value := " \t" + strings.Join(awkward(), "\n") + "\n \n"
				step := s.sh("step", `printf %s "$VALUE"`)
				step.Environment = map[string]string{"VALUE": value}
				_, out := s.begin().run(step)
				require.Equal(s, value, out)
			},
		},
		{
			name: "an empty variable is set", rule: "D3, D4", joint: true,
			run: func(s *stand) {
				step := s.sh("step", `echo "${EMPTY+set}${EMPTY}"`)
				step.Environment = map[string]string{"EMPTY": ""}
				_, out := s.begin().run(step)
				require.Equal(s, "set\n", out)
			},
		},
		{
			name: "the environment of the delegate does not reach steps", rule: "D4, T8", joint: true,
			run: func(s *stand) {
				out := s.begin().out("env")
				require.NotContains(s, out, delegateValue)
				require.NotContains(s, out, delegateVariable)
				require.Contains(s, out, "PATH=")
			},
		},
		{
			name: "a step's variables end with it", rule: "T8",
			run: func(s *stand) {
				tx := s.begin()
				step := tx.sh("one", "export LOCAL=1; true")
				step.Environment = map[string]string{"OWN": "1"}
				tx.run(step)
				require.Equal(s, "none none\n", tx.out(`echo "${OWN-none}" "${LOCAL-none}"`))
			},
		},
		{
			name: "exported variables reach the next step", rule: "D5, protocol.md 5",
			run: func(s *stand) {
				tx := s.begin()
				res, _ := tx.run(tx.sh("one", "echo NEXT=value >> $DRONE_ENV"))
				for k, v := range res.Env {
					tx.env.Envs[k] = v // like package transaction
				}
				require.Equal(s, "value\n", tx.out("echo $NEXT"))
			},
		},
		{
			name: "the variables of output files cannot be overridden", rule: "D5", joint: true,
			run: func(s *stand) {
				step := s.sh("step", "echo A=1 >> $DRONE_OUTPUT")
				step.Environment = map[string]string{"DRONE_OUTPUT": "/dev/null", "HARNESS_OUTPUT_FILE": "/dev/null"}
				res, _ := s.begin().run(step)
				require.Equal(s, map[string]string{"A": "1"}, res.Outputs)
			},
		},
		{
			name: "an invalid variable is refused without its value", rule: "S3", joint: true,
			run: func(s *stand) {
				tx := s.begin()
				for name, value := range map[string]string{"A=B": "hunter2", "": "hunter2", "A": "hunter2\x00"} {
					step := tx.sh("step", "echo RAN")
					step.Environment = map[string]string{name: value}
					out, err := tx.fails(step)
					require.NotContains(s, err.Error(), "hunter2")
					require.NotContains(s, out, "RAN")
				}
			},
		},
		{
			name: "secrets of the environment are neither on disk nor on a command line", rule: "S5",
			run: func(s *stand) {
				tx := s.begin(func(env *driver.Environment) { env.Envs["TOKEN"] = "shared-hunter2-" + randomHex() })
				step := tx.sh("step", `echo "$TOKEN $OWN"; while [ ! -e go ]; do sleep 0.05; done`)
				step.Environment = map[string]string{"OWN": "own-hunter2-" + randomHex()}
				values := []string{tx.env.Envs["TOKEN"], step.Environment["OWN"]}
				r := tx.start(step)
				r.out.WaitFor(s, strings.Join(values, " "))
				for _, value := range values {
					require.Empty(s, s.site.Traces(s, value))
					require.NotContains(s, tx.ledger.text(), value)
					require.NotContains(s, string(tx.env.State), value)
				}
				tx.out("touch go")
				require.NoError(s, r.wait().err)
			},
		},
	}
}
