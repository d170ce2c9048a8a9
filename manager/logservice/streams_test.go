package logservice_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/internal/logservicetest"
	"github.com/delegate-io/dlite/manager/logservice"
)

func TestStreamsInMemory(t *testing.T) {
	t.Parallel()
	logservicetest.Run(t, func(*testing.T) logservicetest.Opener {
		return func() (livelog.Streams, error) { return logservice.NewStreams(), nil }
	}, logservicetest.Volatile())
}

func TestStreamsInFiles(t *testing.T) {
	t.Parallel()
	logservicetest.Run(t, func(t *testing.T) logservicetest.Opener {
		dir := filepath.Join(t.TempDir(), "not", "there", "yet")
		// Each history needs its own folder.
		require.NoError(t, os.MkdirAll(dir, 0o700))
		dir, err := os.MkdirTemp(dir, "")
		require.NoError(t, err)
		return func() (livelog.Streams, error) { return logservice.OpenStreams(dir) }
	})
}

// journal returns the path of the only journal below a folder.
func journal(t *testing.T, dir string) (path string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(p, ".journal") {
			require.Empty(t, path)
			path = p
		}
		return err
	}))
	require.NotEmpty(t, path)
	return path
}

// A crash can cut a file at any byte. The complete frames before the cut stay, and new
// lines follow them.
func TestAStreamThatIsTornEndsBeforeTheTear(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := livelog.ID{Account: "a", Key: "k"}
	batch := func(pos int64, text string) livelog.Batch {
		return livelog.Batch{
			Writer: "w", MaxStream: 1 << 20, Lines: []livelog.Line{{Raw: []byte(`"` + text + `"`), Pos: pos}},
		}
	}
	s, err := logservice.OpenStreams(dir)
	require.NoError(t, err)
	require.NoError(t, s.Append(t.Context(), id, batch(0, "first")))
	path := journal(t, dir)
	info, err := os.Stat(path)
	require.NoError(t, err)
	whole := info.Size()
	require.NoError(t, s.Append(t.Context(), id, batch(1, "second")))
	require.NoError(t, s.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)

	texts := func(dir string, damaged []byte, flip int) (out []string) {
		if flip >= 0 {
			damaged = append([]byte(nil), damaged...)
			damaged[flip] ^= 0x40
		}
		at := filepath.Join(dir, filepath.Base(filepath.Dir(path)), filepath.Base(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, damaged, 0o600))
		s, err := logservice.OpenStreams(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		err = s.Append(t.Context(), id, livelog.Batch{Writer: "w", MaxStream: 1 << 20, Next: 1, Lines: batch(1, "again").Lines})
		if err != nil {
			return nil
		}
		st, err := s.State(t.Context(), id)
		require.NoError(t, err)
		got, err := s.Read(t.Context(), id, st.Run, 0)
		require.NoError(t, err)
		for _, l := range got {
			out = append(out, string(l.Raw))
		}
		return out
	}
	for n := range content {
		got := texts(t.TempDir(), content[:n], -1)
		if int64(n) < whole {
			assert.Nil(t, got, "%d bytes: the writer has to come again from 0", n)
		} else {
			assert.Equal(t, []string{`"first"`, `"again"`}, got, "%d bytes", n)
		}
	}
	for i := int(whole); i < len(content); i++ {
		assert.Equal(t, []string{`"first"`, `"again"`}, texts(t.TempDir(), content, i), "byte %d flipped", i)
	}
	zeros := append(append([]byte(nil), content[:whole]...), make([]byte, 4096)...)
	assert.Equal(t, []string{`"first"`, `"again"`}, texts(t.TempDir(), zeros, -1), "a power failure leaves zeros")
	assert.Equal(t, []string{`"first"`, `"second"`}, texts(t.TempDir(), content, -1))
}

// A file of a later version must not be treated as damaged.
func TestAStreamOfALaterVersionIsNotChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := logservice.OpenStreams(dir)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context(), livelog.ID{Account: "a", Key: "k"}, ""))
	require.NoError(t, s.Close())
	path := journal(t, dir)
	require.NoError(t, os.WriteFile(path, logservice.FrameOfVersion(2), 0o600))
	_, err = logservice.OpenStreams(dir)
	require.ErrorContains(t, err, "newer than this program")
	assert.FileExists(t, path)
}

// Bytes after a damaged frame must not reappear when a new frame of the same size
// replaces it.
func TestBytesBehindATearNeverReappear(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := livelog.ID{Account: "a", Key: "k"}
	s, err := logservice.OpenStreams(dir)
	require.NoError(t, err)
	put := func(text string) {
		require.NoError(t, s.Append(t.Context(), id, livelog.Batch{
			Lines: []livelog.Line{{Raw: []byte(text)}}, MaxStream: 1 << 20,
		}))
	}
	put(`1`)
	info, err := os.Stat(journal(t, dir))
	require.NoError(t, err)
	put(`2`)
	put(`3`)
	require.NoError(t, s.Close())
	content, err := os.ReadFile(journal(t, dir))
	require.NoError(t, err)
	content[info.Size()+4] ^= 1 // in the second batch
	require.NoError(t, os.WriteFile(journal(t, dir), content, 0o600))
	for _, text := range []string{`4`, ``} {
		s, err = logservice.OpenStreams(dir)
		require.NoError(t, err)
		if text != "" {
			put(text)
		}
		st, err := s.State(t.Context(), id)
		require.NoError(t, err)
		assert.EqualValues(t, 2, st.Lines)
		require.NoError(t, s.Close())
	}
}
