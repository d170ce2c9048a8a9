package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// alone returns a folder of pipelines and no manager.
func alone(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	return s
}

func TestAPipelineRunsWithoutAManager(t *testing.T) {
	t.Parallel()
	s := alone(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "secret.yaml"), []byte(pipelineOf(`echo <+secrets.getValue("word")> | rev`)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "secrets.env"), []byte("word=not-a-secret\n"), 0o600))
	for _, c := range []struct {
		code int
		args string
		want string
	}{
		{exitOK, "run pipeline.yaml --local --input pipeline.variables.who=all", "build/greet | hello all"},
		{exitOK, "run secret.yaml --local --secret-file secrets.env", "build/greet | terces-a-ton"},
		{exitFailed, "run failing.yaml --local", "stage build: step then: exit code 3"},
		{exitUsage, "run stage.yaml --local", "stage.yaml"},
		{exitUsage, "run --local --pipeline x", "leave out --local"},
		{exitUsage, "run pipeline.yaml --trusted", "add --local"},
	} {
		code, out, errs := s.exec(t, s.environment("TMPDIR="+s.dir), "", strings.Fields(c.args)...)
		assert.Equal(t, c.code, code, "%s\n%s%s", c.args, out, errs)
		assert.Contains(t, out+errs, c.want, c.args)
		assert.NotContains(t, out+errs, "dlite show", "%s: its manager has ended", c.args)
	}
	code, out, errs := s.exec(t, s.environment("TMPDIR="+s.dir), "", "run", "pipeline.yaml", "--local", "--id", "here", "-o", "json")
	require.Equal(t, exitOK, code, errs)
	var run api.Run
	require.NoError(t, json.Unmarshal([]byte(out), &run), out)
	assert.Equal(t, []string{"here", "SUCCEEDED"}, []string{run.ID, run.Status})
	left, err := filepath.Glob(filepath.Join(s.dir, "dlite-pipelines-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// An interrupt aborts the run, and its steps end.
func TestAnInterruptAbortsARunOnThisMachine(t *testing.T) {
	t.Parallel()
	s := alone(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "long.yaml", "--local")
	cmd.Env, cmd.Dir = s.environment("TMPDIR="+s.dir), s.dir
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if lines.Text() == "build/greet: RUNNING" {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait()
	assert.Equal(t, exitAborted, cmd.ProcessState.ExitCode(), text.String())
	assert.Contains(t, text.String(), "build/greet: ABORTED")
	left, err := filepath.Glob(filepath.Join(s.dir, "dlite-pipelines-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
