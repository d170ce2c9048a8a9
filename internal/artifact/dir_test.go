//go:build unix

package artifact

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

// Rule D8: a directory is filled once for all callers. A failed fill leaves nothing.
func TestADirectoryIsFilledOnceAndCompletely(t *testing.T) {
	t.Parallel()
	c := New(filepath.Join(t.TempDir(), "[a cache]*"), "task")
	broken := errors.New("no disk")
	_, err := c.Dir(t.Context(), Key("a"), func(dir string) error {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o600))
		return broken
	})
	require.ErrorIs(t, err, broken)
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "only the lock")
	// The remains of a process that was killed.
	require.NoError(t, os.MkdirAll(filepath.Join(c.dir, Key("a")+".part-1", "deep"), 0o700))

	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			held, err := New(c.dir, "task").Dir(t.Context(), Key("a"), func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "whole"), []byte("x"), 0o600)
			})
			if assert.NoError(t, err) {
				assert.FileExists(t, filepath.Join(held.Path, "whole"))
				held.Release()
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, fills.Load())
	left, err = os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "the folder and its lock")
}

func TestKeysTellPartsApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, parts := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {"1:a,1:b,"}, {"a", "b"}} {
		require.False(t, seen[Key(parts...)], parts)
		seen[Key(parts...)] = true
	}
}

// Without a checksum, the URL and the version identify a program.
func TestWithoutAChecksumTheVersionCounts(t *testing.T) {
	t.Parallel()
	s := newStore(t, serveBytes(program))
	c := impatient(t)
	exe := s.executable(program)
	exe.SHA256 = ""
	for _, version := range []string{"1", "1", "2", "1", ""} {
		file, err := c.Fetch(t.Context(), exe, version, quiet)
		require.NoError(t, err)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, program, b)
	}
	require.EqualValues(t, 3, s.calls.Load())
}

// If neither the transport nor a checksum shows that a download is complete, there is no download.
func TestWithoutAChecksumTheServerMustMarkTheEnd(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4<<10))
			_, _ = conn.Write(append([]byte("HTTP/1.0 200 OK\r\n\r\n"), program[:100]...))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	c := impatient(t)
	exe := &stage.Executable{URL: "http://" + l.Addr().String() + "/x"}
	_, err = c.Fetch(t.Context(), exe, "", quiet)
	require.ErrorContains(t, err, "has no marked end")
	requireNoHit(t, c)
	exe.SHA256 = checksum(program[:100])
	_, err = c.Fetch(t.Context(), exe, "", quiet)
	require.NoError(t, err, "a checksum tells")
}

func TestChoose(t *testing.T) {
	t.Parallel()
	list := []stage.Executable{
		{OS: "linux", Arch: "amd64", URL: "https://x/a"}, {OS: "linux", Arch: "arm64", URL: "ftp://x/a"},
		{OS: "darwin", Arch: "arm64", URL: "https://x/a", SHA256: strings.Repeat("g", 64)},
	}
	exe, err := Choose(list, "linux", "amd64")
	require.NoError(t, err)
	require.Same(t, &list[0], exe)
	for want, platform := range map[string][2]string{
		"there is linux/amd64, linux/arm64, darwin/arm64": {"plan9", "mips"},
		"url must begin": {"linux", "arm64"}, "64 hexadecimal digits": {"darwin", "arm64"},
	} {
		_, err := Choose(list, platform[0], platform[1])
		require.ErrorContains(t, err, want)
	}
	_, err = Choose(nil, "linux", "amd64")
	require.ErrorContains(t, err, "there is nothing")
}
