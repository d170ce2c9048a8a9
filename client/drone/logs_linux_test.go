package drone

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If the disk is full when a log moves to a file, the log keeps the lines that it has, and remains valid.
func TestAFullDiskKeepsTheLinesInMemory(t *testing.T) {
	t.Parallel()
	s := &spool{}
	defer s.close()
	require.NoError(t, s.add([]byte(`{"pos":0}`)))
	s.path = filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Symlink("/dev/full", s.path))
	require.Error(t, s.add([]byte(`{"pos":1}`)))
	require.NoError(t, s.add([]byte(`{"pos":2}`)), "the disk has room again")
	body, size, err := s.body()
	require.NoError(t, err)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"pos":0},{"pos":2}]`, string(text))
	assert.Len(t, text, int(size))
}
