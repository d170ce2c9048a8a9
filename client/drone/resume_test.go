package drone_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
)

// The state directory has stages of another server and of another runner, and files that are
// broken. The client leaves these stages alone.
func TestStoredStagesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.Stages(s.Add(dronetest.Build{Type: "other"}))[0].ID
	dir := t.TempDir()
	cfg := drone.Config{Endpoint: s.URL, Secret: secret, Name: "test", Types: []string{"docker"}, OS: "linux", Arch: "amd64", Dir: dir}
	c, err := drone.New(cfg)
	require.NoError(t, err)
	stored := []byte(`{"stage":2,"accepted":true}`)
	require.EqualValues(t, 2, id)
	for _, name := range []string{"drone-000000-2.stage", c.Prefix() + "2.stage"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), stored, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, c.Prefix()+"3.stage"), []byte("{"), 0o600))
	_, err = c.Register(t.Context(), &client.Registration{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, c.Prefix()+"2.stage"))
		return os.IsNotExist(err)
	}, 30*time.Second, 5*time.Millisecond)
	p, err := c.Poll(t.Context(), "test", client.PollQuery{})
	require.NoError(t, err)
	assert.Empty(t, p.Events)
	require.NoError(t, c.Unregister(t.Context(), nil))
	assert.FileExists(t, filepath.Join(dir, "drone-000000-2.stage"))
}
