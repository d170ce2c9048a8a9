//go:build unix

package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule D5, section 5 of docs/protocol.md: all files through which a step hands on values.
func TestStepHandsOnOutputsSecretsEnvironmentAndArtifact(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	step := sh("step", `
		echo "A=one" >> $DRONE_OUTPUT; echo "B=__B64__dHdv" >> $HARNESS_OUTPUT_FILE; echo SECRET=1 >> $DRONE_OUTPUT
		echo "S=hidden" >> $HARNESS_OUTPUT_SECRET_FILE
		echo "E=next" >> $DRONE_ENV
		printf '{"kind":"x"}' > $PLUGIN_ARTIFACT_FILE
		touch $HARNESS_SCRATCH_DIR/file`)
	step.Outputs = []stage.Output{{Key: "SECRET", Value: "UNSET", Type: stage.OutputSecret}}
	res, out := r.run(step)
	require.Empty(t, out)
	require.Equal(t, map[string]string{"A": "one", "B": "two"}, res.Outputs)
	require.Equal(t, map[string]string{"S": "hidden", "SECRET": "1"}, res.Secrets)
	require.Equal(t, map[string]string{"E": "next"}, res.Env)
	require.JSONEq(t, `{"kind":"x"}`, string(res.Artifact))
	// Rule S5: the values do not stay on disk.
	left, err := filepath.Glob(filepath.Join(r.work, "*", "steps", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = filepath.Glob(filepath.Join(r.memory, "*", "steps", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStepWithoutOutputsHandsOnNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	res, out := r.run(sh("step", "rm $DRONE_OUTPUT $DRONE_ENV; rm -r $(dirname $HARNESS_OUTPUT_SECRET_FILE)"))
	require.Empty(t, res.Outputs)
	require.Empty(t, res.Secrets)
	require.Nil(t, res.Artifact)
	require.NotContains(t, out, "malformed")
}

// output_vars and outputs name shell variables that are read after the script (section 5 of
// docs/protocol.md). The exit code of the script does not change.
func TestStepHandsOnShellVariables(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"sh", "bash", "busybox sh"} {
		program := strings.Fields(shell)[0]
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("NOT TESTED: there is no %s", program)
			continue
		}
		if shell == "busybox sh" {
			continue // argv is for busybox; the container cases cover its shell
		}
		for _, c := range []struct {
			name, script string
			code         int
			want         map[string]string
			out          string
		}{
			{"plain", "A=1; B='two words'", 0, map[string]string{"A": "1", "B": "two words"}, ""},
			{"exit code", "A=1; false", 1, map[string]string{"A": "1"}, ""},
			{"exit", "A=1; exit 7", 7, map[string]string{"A": "1"}, ""},
			{"exit 0 in the middle", "A=1; exit 0; A=2", 0, map[string]string{"A": "1"}, ""},
			{"set -e", "set -e; A=1; false; A=2", 1, map[string]string{"A": "1"}, ""},
			{"set -u", "set -u; A=1", 0, map[string]string{"A": "1"}, ""},
			{"empty and unset", "A=; unset B", 0, map[string]string{"A": ""}, ""},
			{"multi-line", "A='x\ny=z\n'; B='\"'", 0, map[string]string{"A": "x\ny=z\n", "B": `"`}, ""},
			{"noclobber", "set -C; A=1", 0, map[string]string{"A": "1"}, ""},
			{"comment at the end", "A=1 # done", 0, map[string]string{"A": "1"}, ""},
			{"backslash at the end", `A=1; echo x \`, 0, map[string]string{"A": "1"}, "x\n"},
			{"interpreter line", "#!/bin/sh\nA=1", 0, map[string]string{"A": "1"}, ""},
			{"own trap", "trap 'echo mine' EXIT; A=1", 0, map[string]string{"A": "1"}, "mine\n"},
			{"signal", "A=1; kill -KILL $$", 137, map[string]string{}, ""},
			{"subshell", "A=1; (A=2; exit 3); true", 0, map[string]string{"A": "1"}, ""},
			{"written to the file too", "A=1; echo A=file >> $DRONE_OUTPUT; echo C=3 >> $DRONE_OUTPUT", 0, map[string]string{"A": "1", "C": "3"}, ""},
			{"positional", `A=$0; B="$1-$#"`, 0, map[string]string{"A": "zero", "B": "one-2"}, ""},
		} {
			t.Run(shell+" "+c.name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t).init()
				step := stage.Step{ID: "step", Run: stage.Run{Entrypoint: []string{shell, "-c"}, Command: []string{c.script, "zero", "one", "two"}}}
				step.OutputVars = []string{"A", "B"}
				res, out := r.run(step)
				assert.Equal(t, c.code, res.ExitCode)
				assert.Equal(t, c.want, res.Outputs)
				assert.Equal(t, c.out, out)
			})
		}
	}
}

// scriptOutputs is a script that sets A and B, and its results.
type scriptOutputs struct {
	script    string
	code      int
	want      map[string]string
	out       string
	anyOutput bool // out is not compared
}

// checkOutputs runs each script after the entrypoint and before args, plainly and with a command that holds
// a secret.
func checkOutputs(t *testing.T, cases map[string]scriptOutputs, entrypoint []string, args ...string) {
	t.Helper()
	for name, c := range cases {
		for _, secret := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", secret), func(t *testing.T) {
				t.Parallel()
				r := newRig(t).init()
				step := &driver.Step{SecretCommand: secret, Step: stage.Step{
					ID: "step", OutputVars: []string{"A", "B"}, Run: stage.Run{Entrypoint: entrypoint, Command: append([]string{c.script}, args...)},
				}}
				out := newBuffer()
				res, err := r.d.Execute(t.Context(), r.env, step, out, r.ledger)
				res.End()
				require.NoError(t, err)
				assert.Equal(t, c.code, res.ExitCode, out.String())
				assert.Equal(t, c.want, res.Outputs)
				if !c.anyOutput {
					assert.Equal(t, c.out, out.String())
				}
			})
		}
	}
}

// The variables of a Python script are read like those of a shell.
func TestOutputsOfPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		testbed.Unavailable(t, "python3", "it is not installed")
	}
	checkOutputs(t, map[string]scriptOutputs{
		"plain":       {script: `A = 'grüße\n=\''` + "\nB = 3", want: map[string]string{"A": "grüße\n='", "B": "3"}},
		"future":      {script: "from __future__ import annotations\nA = 1\ndel A", want: map[string]string{}},
		"exit":        {script: "import sys\nA = 1\nsys.exit(7)\nA = 2", code: 7, want: map[string]string{"A": "1"}},
		"line number": {script: "import sys\n\nA = sys._getframe().f_lineno; print(sys.argv[1:])", want: map[string]string{"A": "3"}, out: "['one']\n"},
		"function":    {script: "def f():\n  return x\nx = 5\nA = f()\nif __name__ == '__main__': B = 'main'", want: map[string]string{"A": "5", "B": "main"}},
	}, []string{"python3", "-c"}, "one")
}

// The variables of a PowerShell script are read like those of a shell. Where there is no PowerShell, only
// TestPowerShellScripts in internal/handover checks the text.
func TestOutputsOfPowerShell(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("pwsh"); err != nil {
		t.Skip("NOT TESTED: there is no pwsh")
	}
	checkOutputs(t, map[string]scriptOutputs{
		"plain":     {script: "$A = \"two`nlines\"; $B = 1,2", want: map[string]string{"A": "two\nlines", "B": "1 2"}},
		"exit":      {script: "$A = 1; exit 7; $A = 2", code: 7, want: map[string]string{"A": "1"}},
		"failure":   {script: "$A = 1; Get-Item /no/such/file 2>$null", code: 1, want: map[string]string{"A": "1"}, anyOutput: true},
		"exception": {script: "$A = 1; throw 'x'", code: 1, want: map[string]string{"A": "1"}, anyOutput: true},
		"comment":   {script: "$A = 1 # done", want: map[string]string{"A": "1"}},
	}, []string{"pwsh", "-NoProfile", "-Command"})
}

func TestStepHandsOnSecretVariablesWithoutPrintingThem(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	step := sh("step", `TOKEN=hun; TOKEN=${TOKEN}ter2; NAME=n; set -x; :`)
	step.Outputs = []stage.Output{{Key: "token", Value: "TOKEN", Type: stage.OutputSecret}, {Key: "NAME", Value: "NAME"}}
	res, out := r.run(step)
	require.Equal(t, map[string]string{"token": "hunter2"}, res.Secrets)
	require.Equal(t, map[string]string{"NAME": "n"}, res.Outputs)
	require.NotContains(t, out, "hunter2")

	// bash can write its trace to any file.
	if _, err := exec.LookPath("bash"); err == nil {
		step.Run.Entrypoint[0] = "bash"
		step.Run.Command[0] = `TOKEN=hun; TOKEN=${TOKEN}ter2; exec 9>&1; BASH_XTRACEFD=9; set -x; echo traced`
		res, out = r.run(step)
		require.Equal(t, map[string]string{"token": "hunter2"}, res.Secrets)
		require.Contains(t, out, "+ echo traced")
		require.NotContains(t, out, "hunter2")
	}

	step.Outputs[0].Value = "X;rm -rf /"
	_, err := r.fail(step)
	require.ErrorContains(t, err, "not a valid variable name")

	step = stage.Step{ID: "step", OutputVars: []string{"A"}, Run: stage.Run{Entrypoint: []string{"env"}, Command: []string{"true"}}}
	_, out = r.run(step)
	require.Contains(t, out, "only from the file in DRONE_OUTPUT")
}

// The driver limits what it reads from a step, follows no link, and prints no content of a malformed
// file.
func TestAStepCannotMakeTheDriverReadOtherFiles(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("K=hunter2"), 0o600))
	for name, c := range map[string]struct{ script, want string }{
		"link":        {`ln -sf ` + secret + ` $DRONE_OUTPUT`, "not a regular file"},
		"inner link":  {`echo K=hunter2 > $DRONE_OUTPUT.x; ln -sf $(basename $DRONE_OUTPUT).x $DRONE_OUTPUT`, "not a regular file"},
		"pipe":        {`rm $DRONE_OUTPUT; mkfifo $DRONE_OUTPUT`, "not a regular file"},
		"folder":      {`rm $DRONE_OUTPUT; mkdir $DRONE_OUTPUT`, "not a regular file"},
		"linked dir":  {`d=$(dirname $DRONE_OUTPUT); rm -r $d; ln -s ` + filepath.Dir(secret) + ` $d; mv -f ` + secret + ` ` + secret + `x`, ""},
		"too large":   {`head -c 2000 /dev/zero | tr '\0' K > $DRONE_OUTPUT`, "larger than 1000 bytes"},
		"malformed":   {`echo hunter2 > $DRONE_OUTPUT`, "line 1: not of the form KEY=VALUE"},
		"large value": {`printf K= > $PLUGIN_ARTIFACT_FILE; head -c 2000 /dev/zero >> $PLUGIN_ARTIFACT_FILE`, "artifact file could not be read: it is larger than 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withFileLimit(1000)).init()
			res, out := r.run(sh("step", c.script))
			require.Contains(t, out, c.want)
			require.NotContains(t, out, "hunter2")
			require.NotContains(t, res.Outputs, "K")
			require.Nil(t, res.Artifact)
			require.Zero(t, res.ExitCode)
			if name == "malformed" || name == "linked dir" {
				require.Empty(t, res.Lost)
			} else {
				require.Contains(t, res.Lost, c.want)
			}
		})
	}
}

func TestStepMayNameItsOutputFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	step := sh("step", `echo A=1 >> out/vars; echo B=2 >> "$DRONE_OUTPUT"; echo C=3 >> secrets; touch $HARNESS_SCRATCH_DIR/x; ls scratch`)
	step.OutputVarFile, step.SecretVarFile, step.ScratchDir = "out/vars", "/workspace/secrets", "scratch"
	res, out := r.run(step)
	require.Equal(t, "x\n", out)
	require.Equal(t, map[string]string{"A": "1", "B": "2"}, res.Outputs)
	require.Equal(t, map[string]string{"C": "3"}, res.Secrets)
	for _, bad := range []string{"/etc/vars", "../vars"} {
		step.OutputVarFile = bad
		_, err := r.fail(step)
		require.ErrorContains(t, err, "not in the workspace")
	}
}

func TestFilesAreMadeInTheWorkspaceAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env.Files = []*stage.File{
		{Path: "a/run.sh", Mode: 0o755, Data: "echo hi"}, {Path: "/workspace/plain", Data: "x"}, {Path: "d", IsDir: true, Mode: 0o700}, nil,
	}
	r.init()
	_, out := r.run(sh("step", "a/run.sh; stat -c '%a %n' a/run.sh plain d"))
	require.Equal(t, "hi\n755 a/run.sh\n644 plain\n700 d\n", out)
	for _, bad := range []string{"/etc/x", "../x", "", "a/../../x"} {
		step := sh("step", "true")
		step.Files = []*stage.File{{Path: bad}}
		_, err := r.fail(step)
		require.ErrorContains(t, err, "not in the workspace")
	}
	// The same through a link that an earlier step left.
	r.run(sh("step", "ln -s "+r.work+" link"))
	step := sh("step", "true")
	step.Files = []*stage.File{{Path: "link/x"}}
	_, err := r.fail(step)
	require.ErrorContains(t, err, "escapes")
}
