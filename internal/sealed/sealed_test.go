package sealed_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/sealed"
)

func TestTheNextProcessUnsealsAValueForItsFileOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	first, err := sealed.Open(path)
	require.NoError(t, err)
	line := first.Seal([]byte("fake-token"), "a")
	assert.NotContains(t, string(line), "fake-token")
	line = bytes.TrimSuffix(line, []byte("\n"))

	next, err := sealed.Open(path)
	require.NoError(t, err)
	got, err := next.Unseal(line, "a")
	require.NoError(t, err)
	assert.Equal(t, "fake-token", string(got))
	_, err = next.Unseal(line, "b")
	require.Error(t, err)
}

func TestAKeyOfAnotherLengthIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte("short"), 0o600))
	c, err := sealed.Open(path)
	require.NoError(t, err)
	assert.True(t, c.HasKey())
	key, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Len(t, key, 32)
}
