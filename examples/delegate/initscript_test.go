//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prepared runs an init script and returns its log.
func prepared(ctx context.Context, t *testing.T, dir string, set func(*config)) (string, error) {
	t.Helper()
	cfg := config{LedgerDir: dir, InitConfig: InitConfig{InitTimeout: 60}}
	set(&cfg)
	var out bytes.Buffer
	err := runInitScript(ctx, cfg, zerolog.New(&out))
	return out.String(), err
}

// Rule X2: the output of the init script is in the log, line by line, also a last line without its end, and the script
// has neither an input nor the settings of the delegate.
func TestTheInitScriptRunsBeforeTheDelegate(t *testing.T) {
	t.Setenv("TOKEN", "visibly-fake-token") // of the delegate's own environment
	dir := t.TempDir()
	log, err := prepared(t.Context(), t, dir, func(c *config) {
		c.InitScript = "echo one; echo two >&2; cat; echo token=$TOKEN.; printf last"
	})
	require.NoError(t, err)
	for _, line := range []string{`"message":"one"`, `"message":"two"`, `"message":"token=."`, `"message":"last"`} {
		assert.Contains(t, log, line)
	}
	assert.Equal(t, 4, strings.Count(log, `"source":"init script"`))
}

// Rule X2: the script runs once after a start of the machine, unless it changes or the operator wants more.
func TestTheInitScriptRunsOnceAfterAStartOfTheMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if bootID() == "" {
		t.Skip("this system does not tell its last start: the script runs at each start")
	}
	const script = "echo prepared >>prepared"
	set := func(c *config) { c.InitScript = "cd '" + dir + "'; " + script }
	for range 2 {
		_, err := prepared(t.Context(), t, dir, set)
		require.NoError(t, err)
	}
	count := func() int {
		b, err := os.ReadFile(filepath.Join(dir, "prepared"))
		require.NoError(t, err)
		return strings.Count(string(b), "\n")
	}
	assert.Equal(t, 1, count())
	_, err := prepared(t.Context(), t, dir, func(c *config) { set(c); c.InitAlways = true })
	require.NoError(t, err)
	assert.Equal(t, 2, count())
	_, err = prepared(t.Context(), t, dir, func(c *config) { set(c); c.InitScript += " # changed" })
	require.NoError(t, err)
	assert.Equal(t, 3, count())
	// The first process of a restarted container has another start.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "init-script"), []byte(initMark("cd '"+dir+"'; "+script, "another boot")), 0o600))
	_, err = prepared(t.Context(), t, dir, set)
	require.NoError(t, err)
	assert.Equal(t, 4, count())
}

// Rule X2: a script that fails or takes too long ends the delegate, with its own exit code and without its output, which
// may contain secrets. It runs again at the next start.
func TestAnInitScriptThatFailsEndsTheDelegate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for script, want := range map[string]string{
		"echo visibly-fake-secret; false; echo not reached": "INIT_SCRIPT: exit status 1: the log has its output",
		"exit 7":           "INIT_SCRIPT: exit status 7 without output",
		"echo 'unclosed":   "INIT_SCRIPT: exit status 2",
		"kill -KILL $$":    "INIT_SCRIPT: signal: killed",
		"nosuchprogram -x": "INIT_SCRIPT: exit status 127",
	} {
		for range 2 {
			_, err := prepared(t.Context(), t, dir, func(c *config) { c.InitScript = script })
			require.ErrorContains(t, err, want, script)
			assert.NotContains(t, err.Error(), "visibly-fake-secret")
			var coded interface{ ExitCode() int }
			require.ErrorAs(t, err, &coded)
			assert.Equal(t, 75, coded.ExitCode())
		}
	}
	log, err := prepared(t.Context(), t, dir, func(c *config) { c.InitScript, c.InitTimeout = "sleep 600 & echo waits; wait", 1 })
	require.ErrorContains(t, err, "INIT_SCRIPT: it took longer than 1s and was stopped")
	assert.Contains(t, log, "waits")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = prepared(ctx, t, dir, func(c *config) { c.InitScript = "sleep 600" })
	assert.True(t, errors.Is(err, errInterrupted), err)
}

// A script without line ends cannot take the memory of the delegate.
func TestLongLinesOfTheInitScriptAreCut(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &lineLog{log: zerolog.New(&out)}
	for range 100 {
		_, _ = l.Write(bytes.Repeat([]byte("x"), 1000))
	}
	l.flush()
	assert.Greater(t, strings.Count(out.String(), "\n"), 10)
	assert.LessOrEqual(t, cap(l.partial), 3*maxInitLine)
}
