package storage

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// To open a pipe waits for a writer: the step would hang until its time-out.
func TestPipesAreNotOpened(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	file(t, m.workspace, "dist/app.js", "app")
	require.NoError(t, unix.Mkfifo(filepath.Join(m.workspace, "dist/pipe"), 0o600))
	_, err := m.do(t, "upload", map[string]string{"PLUGIN_SOURCE": "dist"})
	require.ErrorContains(t, err, `"dist/pipe" is not a file`)
	out := m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": `{{ checksum "dist/*" }}`})
	require.Contains(t, out, `"dist/pipe" is not a file`)
	out = m.must(t, "save", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["dist"]`})
	require.Contains(t, out, "1 devices, sockets or pipes are left out")
}
