package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

const shown = "visibly-fake-secret"

// Rule S5: a script with a secret is on no command line, and its effect does not change.
func TestAScriptWithASecretIsOnNoCommandLine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		argv []string
		out  string
		code int
	}{
		"sh":                {[]string{"sh", "-c", "echo $(( ${#S} + 0 )); S=" + shown + "; echo ${#S}"}, "0\n19\n", 0},
		"exit code":         {[]string{"sh", "-c", ": " + shown + "; exit 7"}, "", 7},
		"set -e":            {[]string{"sh", "-ec", ": " + shown + "\nfalse\necho not here"}, "", 1},
		"set -u":            {[]string{"sh", "-uc", ": " + shown + "\necho a"}, "a\n", 0},
		"arguments":         {[]string{"sh", "-c", ": " + shown + `; echo "$0 $1"`, "zero", "one"}, "zero one\n", 0},
		"line numbers":      {[]string{"bash", "-c", ": " + shown + "\necho $LINENO"}, "2\n", 0},
		"comment and here":  {[]string{"sh", "-c", "# " + shown + "\ncat <<'E'\n$HOME\nE\n"}, "$HOME\n", 0},
		"quotes":            {[]string{"sh", "-c", "echo \"`echo a`\" '\"' \\\\ # " + shown}, "a \" \\\n", 0},
		"the variable":      {[]string{"sh", "-c", ": " + shown + "; env | grep -c DLITE_SCRIPT; exit 0"}, "0\n", 0},
		"trap":              {[]string{"sh", "-c", "trap 'echo bye' EXIT; : " + shown + "; exit 3"}, "bye\n", 3},
		"python":            {[]string{"python3", "-c", "import os, sys\nx = '" + shown + "'\nprint(len(x), 'DLITE_SCRIPT' in os.environ, sys.argv[1:])\nsys.exit(4)", "a"}, "19 False ['a']\n", 4},
		"python, traceback": {[]string{"python3", "-c", "# " + shown + "\nprint(1)"}, "1\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(tt.argv[0]); err != nil {
				testbed.Unavailable(t, tt.argv[0], "it is not installed")
			}
			r := newRig(t).init()
			step := &driver.Step{SecretCommand: true, Step: stage.Step{ID: "s", Run: stage.Run{Entrypoint: tt.argv[:1], Command: tt.argv[1:]}}}
			out := newBuffer()
			res, err := r.d.Execute(t.Context(), r.env, step, out, r.ledger)
			require.NoError(t, err)
			assert.Equal(t, tt.code, res.ExitCode, out.String())
			assert.Equal(t, tt.out, out.String())
		})
	}
}

// Rule S5: the arguments of host processes, and the engine's data about a container, do not show the
// secret.
func TestASecretIsNotVisibleWhileTheStepRuns(t *testing.T) {
	t.Parallel()
	script := ": " + shown + "; A=handed-on; echo here; while [ ! -e go ]; do sleep 0.01; done"
	for _, kind := range []string{"host", "container"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r, engine := dockerRig(t)
			r.init()
			step := &driver.Step{SecretCommand: true, Step: sh("s", script)}
			step.OutputVars = []string{"A"}
			if kind == "container" {
				step.Step = in(engine.Image, step.Step)
			}
			out, done := newBuffer(), make(chan *driver.Result, 1)
			go func() {
				res, err := r.d.Execute(t.Context(), r.env, step, out, r.ledger)
				assert.NoError(t, err)
				done <- res
			}()
			dirs, err := filepath.Glob(filepath.Join(r.work, "*", "workspace"))
			require.NoError(t, err)
			require.Len(t, dirs, 1)
			out.waitFor(t, "here\n")
			all, err := filepath.Glob("/proc/[0-9]*/cmdline")
			require.NoError(t, err)
			for _, path := range all {
				b, _ := os.ReadFile(path) // the process may have ended
				assert.NotContains(t, string(b), shown, path)
			}
			if kind == "container" {
				list, err := engine.Client.ContainerList(t.Context(), container.ListOptions{
					Filters: filters.NewArgs(filters.Arg("label", driver.LabelTransaction+"="+r.env.ID)),
				})
				require.NoError(t, err)
				require.Len(t, list, 1)
				info, err := engine.Client.ContainerInspect(t.Context(), list[0].ID)
				require.NoError(t, err)
				assert.NotContains(t, strings.Join(info.Config.Cmd, " ")+strings.Join(info.Args, " "), shown)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dirs[0], "go"), nil, 0o600))
			assert.Equal(t, "handed-on", (<-done).Outputs["A"])
		})
	}
}

// Rule S5: a step whose command line would show a secret does not run.
func TestACommandLineThatWouldShowASecretIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	for _, argv := range [][]string{{"echo", shown}, {"sh", shown}, {"python3", shown}, {"sh", "-c"}} {
		step := &driver.Step{SecretCommand: true, Step: stage.Step{ID: "s", Run: stage.Run{Entrypoint: argv}}}
		_, err := r.d.Execute(t.Context(), r.env, step, newBuffer(), r.ledger)
		require.ErrorContains(t, err, "would show a secret", argv)
		require.ErrorContains(t, err, "environment", "the error gives advice")
		assert.NotContains(t, err.Error(), shown)
	}
}
