package drivertest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

// values are output variables of a step.
type values = map[string]string

func handoverCases() []testCase {
	return []testCase{
		handoverCase("outputs are read from DRONE_OUTPUT", "echo A=one >> $DRONE_OUTPUT; echo 'B=two words' >> $DRONE_OUTPUT", values{"A": "one", "B": "two words"}),
		handoverCase("outputs are read from HARNESS_OUTPUT_FILE", "echo A=one >> $HARNESS_OUTPUT_FILE", values{"A": "one"}),
		handoverCase("a later output replaces an earlier one", "echo A=1 >> $DRONE_OUTPUT; echo A=2 >> $DRONE_OUTPUT", values{"A": "2"}),
		handoverCase("an output may contain syntax characters", `echo 'A=b=c # $HOME' >> $DRONE_OUTPUT`, values{"A": "b=c # $HOME"}),
		handoverCase("an output may be empty", "echo A= >> $DRONE_OUTPUT", values{"A": ""}),
		handoverCase("an output's last line needs no newline", "printf A=1 >> $DRONE_OUTPUT", values{"A": "1"}),
		handoverCase("an output may be base64", "echo A=__B64__YQpi >> $DRONE_OUTPUT", values{"A": "a\nb"}),
		handoverCase("an output may be quoted", `echo "A='single \$x'" >> $DRONE_OUTPUT; echo 'B="a\tb"' >> $DRONE_OUTPUT`, values{"A": "single $x", "B": "a\tb"}),
		handoverCase("a quoted output may have several lines", `printf 'A="one\ntwo"\nB=3\n' >> $DRONE_OUTPUT`, values{"A": "one\ntwo", "B": "3"}),
		handoverCase("a step may remove its output files", "rm -f $DRONE_OUTPUT $DRONE_ENV $HARNESS_OUTPUT_SECRET_FILE", values{}),
		{
			name: "secret outputs are separate from other outputs", rule: "D5, S3", joint: true,
			run: func(s *stand) {
				res, out := s.begin().run(s.sh("step", "echo A=public >> $DRONE_OUTPUT; echo S=hunter2 >> $HARNESS_OUTPUT_SECRET_FILE"))
				require.Equal(s, values{"A": "public"}, res.Outputs)
				require.Equal(s, values{"S": "hunter2"}, res.Secrets)
				require.NotContains(s, out, "hunter2")
			},
		},
		{
			name: "secret outputs do not touch the disk", rule: "S5",
			run: func(s *stand) {
				tx := s.begin()
				secret := "hunter2-" + randomHex()
				step := tx.sh("step", `echo "S=$SECRET" >> $HARNESS_OUTPUT_SECRET_FILE; echo written; while [ ! -e go ]; do sleep 0.05; done`)
				step.Environment = map[string]string{"SECRET": secret}
				r := tx.start(step)
				r.out.WaitFor(s, "written")
				require.Empty(s, s.site.Traces(s, secret))
				tx.out("touch go")
				end := r.wait()
				require.NoError(s, end.err)
				require.Equal(s, values{"S": secret}, end.res.Secrets)
				require.Empty(s, s.site.Traces(s, secret))
			},
		},
		{
			name: "exported environment is returned", rule: "D5, protocol.md 5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", "echo E=next >> $DRONE_ENV; echo 'F=__B64__dHdv' >> $DRONE_ENV"))
				require.Equal(s, values{"E": "next", "F": "two"}, res.Env)
				require.Empty(s, res.Outputs)
			},
		},
		{
			name: "the outputs of a failed step are returned", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", "echo A=1 >> $DRONE_OUTPUT; exit 5"))
				require.Equal(s, 5, res.ExitCode)
				require.Equal(s, values{"A": "1"}, res.Outputs)
			},
		},
		{
			name: "outputs belong to one step", rule: "D5", joint: true,
			run: func(s *stand) {
				tx := s.begin()
				tx.run(tx.sh("step", "echo A=1 >> $DRONE_OUTPUT"))
				res, _ := tx.run(tx.sh("step", "cat $DRONE_OUTPUT; echo B=2 >> $DRONE_OUTPUT"))
				require.Equal(s, values{"B": "2"}, res.Outputs)
			},
		},
		{
			name: "twenty thousand outputs are returned", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", `seq 1 20000 | sed 's/.*/KEY_&=value &/' >> $DRONE_OUTPUT`))
				require.Len(s, res.Outputs, 20000)
				require.Equal(s, "value 20000", res.Outputs["KEY_20000"])
			},
		},
		{
			name: "a malformed line does not affect other lines and is not shown", rule: "D5", joint: true,
			run: func(s *stand) {
				res, out := s.begin().run(s.sh("step", `printf 'A=1\nhunter2\nB=__B64__!hunter2\nC=3\n' >> $DRONE_OUTPUT; exit 6`))
				require.Equal(s, 6, res.ExitCode)
				require.Equal(s, values{"A": "1", "C": "3"}, res.Outputs)
				require.NotContains(s, out, "hunter2")
				require.NotEmpty(s, out, "the output does not report it")
			},
		},
		{
			name: "an output file that is too large is not read", rule: "D5", joint: true,
			run: func(s *stand) {
				res, out := s.begin().run(s.sh("step", `echo A=1 >> $DRONE_OUTPUT; echo B=1 >> $DRONE_ENV; head -c 20000000 /dev/zero | tr '\000' x >> $DRONE_OUTPUT; exit 6`))
				require.Equal(s, 6, res.ExitCode)
				require.Empty(s, res.Outputs)
				require.Equal(s, values{"B": "1"}, res.Env)
				require.NotEmpty(s, out, "the output does not report it")
			},
		},
		{
			// If /etc/os-release exists, it has KEY=value lines.
			name: "a link out of the workspace is not followed", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", `for f in $DRONE_OUTPUT $DRONE_ENV $HARNESS_OUTPUT_SECRET_FILE; do rm -f $f; ln -s /etc/os-release $f; done
					ln -s /etc/passwd $PLUGIN_ARTIFACT_FILE`))
				require.Zero(s, res.ExitCode)
				require.Empty(s, res.Outputs)
				require.Empty(s, res.Env)
				require.Empty(s, res.Secrets)
				require.Empty(s, res.Artifact)
			},
		},
		{
			name: "a pipe instead of an output file does not block", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", `for f in $DRONE_OUTPUT $DRONE_ENV $HARNESS_OUTPUT_SECRET_FILE; do rm -f $f; mkfifo $f; done; mkdir $PLUGIN_ARTIFACT_FILE`))
				require.Zero(s, res.ExitCode)
				require.Empty(s, res.Outputs)
				require.Empty(s, res.Artifact)
			},
		},
		{
			name: "an artifact file is returned unchanged", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", `printf '{"a":\000\377}\n' > $PLUGIN_ARTIFACT_FILE`))
				require.Equal(s, "{\"a\":\x00\xff}\n", string(res.Artifact))
			},
		},
		{
			name: "a step without an artifact has none", rule: "D5", joint: true,
			run: func(s *stand) {
				res, _ := s.begin().run(s.sh("step", `[ -n "$PLUGIN_ARTIFACT_FILE" ]`))
				require.Zero(s, res.ExitCode)
				require.Nil(s, res.Artifact)
				require.Empty(s, res.Outputs)
				require.Empty(s, res.Secrets)
				require.Empty(s, res.Env)
			},
		},
		{
			name: "output files may be paths in the workspace", rule: "D5, protocol.md 5", joint: true,
			run: func(s *stand) {
				step := s.sh("step", `echo A=1 >> outputs.env; echo S=2 >> sub/secrets.env; echo B=3 >> $DRONE_OUTPUT`)
				step.OutputVarFile, step.SecretVarFile = "outputs.env", "sub/secrets.env"
				res, out := s.begin().run(step)
				require.Zero(s, res.ExitCode, out)
				require.Equal(s, values{"A": "1", "B": "3"}, res.Outputs)
				require.Equal(s, values{"S": "2"}, res.Secrets)
			},
		},
	}
}

func handoverCase(name, script string, want values) testCase {
	return testCase{name: name, rule: "D5, protocol.md 5", joint: true, run: func(s *stand) {
		res, out := s.begin().run(s.sh("step", script))
		require.Zero(s, res.ExitCode, out)
		require.Empty(s, out)
		require.Len(s, res.Outputs, len(want))
		for k, v := range want {
			require.Equal(s, v, res.Outputs[k], k)
		}
	}}
}

func readOutCases() []testCase {
	return []testCase{
		readOutCase("shell variables are read after the script", "A=1; B='two words'", 0, values{"A": "1", "B": "two words"}),
		readOutCase("reading variables keeps the exit code", "A=1; exit 7", 7, values{"A": "1"}),
		readOutCase("reading variables keeps the exit code of the last command", "A=1; (exit 5)", 5, values{"A": "1"}),
		readOutCase("variables are read after set -e has ended the script", "set -eu; A=1; false; A=2", 1, values{"A": "1"}),
		readOutCase("a variable may have several lines", "A='x\ny=\"z\"\n'", 0, values{"A": "x\ny=\"z\"\n"}),
		readOutCase("an empty variable is returned and an unset one is not", "A=; unset B", 0, values{"A": ""}),
		readOutCase("a script may end in a comment", "A=1 # done", 0, values{"A": "1"}),
		{
			name: "outputs may have keys that differ from their variables", rule: "protocol.md 5", joint: true,
			run: func(s *stand) {
				step := s.sh("step", "VAR=value")
				step.Outputs = []stage.Output{{Key: "key", Value: "VAR", Type: stage.OutputString}}
				res, _ := s.begin().run(step)
				require.Equal(s, values{"key": "value"}, res.Outputs)
			},
		},
		{
			name: "secret variables are separate and not printed", rule: "protocol.md 5, S3", joint: true,
			run: func(s *stand) {
				step := s.sh("step", "V=hun; V=${V}ter2; set -x; :")
				step.Outputs = []stage.Output{{Key: "key", Value: "V", Type: stage.OutputSecret}, {Key: "other", Value: "W"}}
				res, out := s.begin().run(step)
				require.Equal(s, values{"key": "hunter2"}, res.Secrets)
				require.Empty(s, res.Outputs)
				require.NotContains(s, out, "hunter2")
			},
		},
		{
			name: "the name of a variable is not evaluated", rule: "protocol.md 5, S2",
			run: func(s *stand) {
				step := s.sh("step", "echo RAN")
				step.OutputVars = []string{"A$(touch evaluated)"}
				tx := s.begin()
				_, _ = tx.execute(s.Context(), step, NewOutput()) // the driver may refuse or ignore the name
				require.Equal(s, "", tx.out("ls"))
			},
		},
	}
}

func readOutCase(name, script string, code int, want values) testCase {
	return testCase{name: name, rule: "D5, protocol.md 5", joint: true, run: func(s *stand) {
		step := s.sh("step", script)
		step.OutputVars = []string{"A", "B"}
		res, out := s.begin().run(step)
		require.Equal(s, code, res.ExitCode, out)
		require.Equal(s, want, res.Outputs, fmt.Sprintf("output %q", out))
		require.Empty(s, out)
	}}
}
