package storage

import (
	"bytes"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sources returns the size of the standard library, which it copies to dir.
func sources(b *testing.B, dir string) (size int64) {
	b.Helper()
	require.NoError(b, os.CopyFS(dir, os.DirFS(filepath.Join(build.Default.GOROOT, "src"))))
	require.NoError(b, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if info, infoErr := e.Info(); infoErr == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return err
	}))
	return size
}

// BenchmarkCache saves and restores the sources of the standard library, beside tar and zstd with one
// request. The service is in the same process, and its time counts for all of them. The metric cpu-s/op is
// processor time, on which other processes have little influence.
func BenchmarkCache(b *testing.B) {
	m := newMachine(b, newService(b))
	size := sources(b, filepath.Join(m.workspace, "src"))
	env := map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["src"]`, "PLUGIN_OVERRIDE": "true"}
	fresh := func() {
		m.service = newService(b)
	}
	b.Run("save", func(b *testing.B) {
		b.SetBytes(size)
		for used := processors(b); b.Loop(); used() {
			b.StopTimer()
			fresh()
			b.StartTimer()
			m.must(b, "save", env)
		}
	})
	b.Run("save again", func(b *testing.B) {
		b.SetBytes(size)
		for used := processors(b); b.Loop(); used() {
			m.must(b, "save", env)
		}
	})
	b.Run("restore", func(b *testing.B) {
		m.must(b, "save", env)
		b.SetBytes(size)
		for used := processors(b); b.Loop(); used() {
			b.StopTimer()
			other := newMachine(b, m.service)
			b.StartTimer()
			other.must(b, "restore", env)
		}
	})
	b.Run("tar, zstd and one PUT", func(b *testing.B) {
		b.SetBytes(size)
		for used := processors(b); b.Loop(); used() {
			archive := shell(b, m.workspace, nil, "tar -c src | zstd -q -T0")
			m.service.write(b, "archive", archive) // less than a real request
		}
	})
	b.Run("one GET, zstd and tar", func(b *testing.B) {
		m.service.write(b, "archive", shell(b, m.workspace, nil, "tar -c src | zstd -q -T0"))
		b.SetBytes(size)
		for used := processors(b); b.Loop(); used() {
			b.StopTimer()
			dir := b.TempDir()
			b.StartTimer()
			object, err := m.service.backend.GetObject("caches", "archive", nil)
			require.NoError(b, err)
			var archive bytes.Buffer
			_, err = archive.ReadFrom(object.Contents)
			require.NoError(b, err)
			require.NoError(b, object.Contents.Close())
			shell(b, dir, &archive, "zstd -q -d | tar -x")
		}
	})
}

func shell(b *testing.B, dir string, in *bytes.Buffer, command string) []byte {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "sh", "-ec", command)
	cmd.Dir = dir
	if in != nil {
		cmd.Stdin = in
	}
	out, err := cmd.Output()
	require.NoError(b, err)
	return out
}

// processors returns a function that reports the time on processors since the call, of this process and
// of its children.
func processors(b *testing.B) func() {
	b.Helper()
	now := func() (sum time.Duration) {
		for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			var u unix.Rusage
			require.NoError(b, unix.Getrusage(who, &u))
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return sum
	}
	begin, n := now(), 0
	return func() {
		n++
		b.ReportMetric((now()-begin).Seconds()/float64(n), "cpu-s/op")
	}
}
