package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/internal/testbed"
)

// inKeyring runs a script in a session with the keyring of GNOME, which is unlocked with a password.
func (s *site) inKeyring(t *testing.T, password, script string) (string, error) {
	t.Helper()
	for _, program := range []string{"dbus-run-session", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			testbed.Unavailable(t, "gnome-keyring", "%v", err)
		}
	}
	runtime := t.TempDir() // a session has its own sockets
	cmd := exec.CommandContext(t.Context(), "dbus-run-session", "--", "sh", "-ec",
		`printf %s "$PASSWORD" | gnome-keyring-daemon --unlock --components=secrets --daemonize >/dev/null 2>&1; `+script)
	cmd.Dir, cmd.Env = s.dir, s.environment("PATH="+bin(t)+":"+os.Getenv("PATH"), "PASSWORD="+password, "TOKEN="+s.token, "URL="+s.URL, "XDG_RUNTIME_DIR="+runtime)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The token is in a real keyring of the system, and in no file of this program.
func TestTheKeyringKeepsTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const password = "not-a-real-password"
	out, err := s.inKeyring(t, password, `
echo "$TOKEN" | dlite login "$URL" --account `+machine.Account+` --name work
dlite tokens
dlite delegates`)
	require.NoError(t, err, out)
	assert.NotContains(t, out, "no keyring")
	assert.Regexp(t, `work .* keyring +valid`, out)
	assert.Contains(t, out, "local")
	config, err := os.ReadFile(filepath.Join(s.dir, "config.yaml"))
	require.NoError(t, err)
	assert.NotContains(t, string(config), s.token)
	assert.Contains(t, string(config), "keyring: true")

	out, err = s.inKeyring(t, password, `dlite ls && dlite tokens --remove work && dlite tokens`) // after a new login of the user
	require.NoError(t, err, out)
	assert.Contains(t, out, "no context")

	out, err = s.inKeyring(t, password, `echo "$TOKEN" | dlite login "$URL" --account `+machine.Account+` --name work --store keyring`)
	require.NoError(t, err, out)
	code, _, errs := s.exec(t, s.environment("DBUS_SESSION_BUS_ADDRESS=unix:path="+s.dir+"/nothing"), "", "ls")
	assert.Equal(t, exitToken, code)
	assert.Contains(t, errs, "the keyring does not give the token of the context work")
	assert.Contains(t, errs, "or set DLITE_TOKEN")
}

// Without a keyring the token is in a file that only the user may read, and the program says so.
func TestWithoutAKeyringTheTokenIsInAFile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	env := s.environment("DBUS_SESSION_BUS_ADDRESS=unix:path=" + s.dir + "/nothing")
	code, _, errs := s.exec(t, env, s.token+"\n", "login", s.URL, "--account", machine.Account, "--store", "keyring")
	assert.Equal(t, exitToken, code)
	assert.Contains(t, errs, "use --store file")
	code, _, errs = s.exec(t, env, s.token+"\n", "login", s.URL, "--account", machine.Account)
	require.Equal(t, exitOK, code, errs)
	file := filepath.Join(s.dir, "config.yaml")
	assert.Contains(t, errs, "there is no keyring for the token")
	assert.Contains(t, errs, "it is in "+file+", which only you may read")
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	code, out, errs := s.exec(t, env, "", "tokens")
	require.Equal(t, exitOK, code, errs)
	assert.Regexp(t, `file +valid`, out)
}
