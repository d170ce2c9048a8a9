package service

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// Rule G4: the command of root makes the running process upgrade itself, or prints why it cannot.
func TestTheRunningProcessUpgradesItself(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "status.sock")
	s := Service{Program: "delegate", Name: "dlite-other"}
	_, err := s.Upgrade(t.Context(), Paths{Runtime: filepath.Dir(socket)}, Upgrade{})
	require.ErrorIs(t, err, ErrNotRunning)
	assert.ErrorContains(t, err, `start it with "delegate start --name dlite-other"`)

	none := attach(t, Config{Socket: socket, Status: func() Status { return Status{} }})
	_, err = AskUpgrade(t.Context(), socket, Upgrade{})
	require.ErrorContains(t, err, "does not upgrade itself")
	require.NoError(t, none.Close())

	h := attach(t, Config{Socket: socket, Status: func() Status { return Status{} }, Upgrade: func(_ context.Context, u Upgrade) (Upgraded, error) {
		if u.Version == "v1.0.0" && !u.Downgrade {
			return Upgraded{}, errors.New("it is\x1b older")
		}
		return Upgraded{Version: u.Version}, nil
	}})
	if os.Geteuid() != 0 {
		_, err = AskUpgrade(t.Context(), socket, Upgrade{})
		require.ErrorContains(t, err, "only root may ask")
		require.NoError(t, h.Close())
		testbed.Unavailable(t, "root", "only root may ask for an upgrade")
	}
	_, err = AskUpgrade(t.Context(), socket, Upgrade{Version: "v1.0.0"})
	require.EqualError(t, err, `the running process cannot upgrade itself: "it is\x1b older"`)
	a, err := AskUpgrade(t.Context(), socket, Upgrade{Version: "v1.0.0", Downgrade: true})
	require.NoError(t, err)
	assert.Equal(t, Upgraded{Version: "v1.0.0"}, a)

	// A step may have the user of the program, for whom the socket is open.
	require.NoError(t, os.Chmod(filepath.Dir(socket), 0o777)) //nolint:gosec // in this test for anybody
	require.NoError(t, os.Chmod(socket, 0o666))               //nolint:gosec // as above
	step := exec.CommandContext(t.Context(), "curl", "-sS", "--unix-socket", socket, "-d", `{"version":"v1.0.0","downgrade":true}`, "http://service"+upgradePath)
	step.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := step.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.JSONEq(t, `{"error":"only root may ask for an upgrade"}`, string(out))
	require.NoError(t, h.Close())
}

// The unit of a service names the program that root upgrades, and no other one.
func TestAUnitStartsOneProgram(t *testing.T) {
	t.Parallel()
	s := Service{Program: "delegate", Name: "dlite-delegate"}
	at, err := s.pathsOn("linux", dirs{})
	require.NoError(t, err)
	text := []byte(unit{Service: s, At: at, Binary: "/opt/a b/100%", Account: "dlite"}.text())
	assert.True(t, starts(text, "/opt/a b/100%"))
	assert.False(t, starts(text, "/opt/a"))
	assert.False(t, starts(text, "/opt/a b/100"))
	assert.False(t, starts(nil, "/opt/a b/100%"))
}
