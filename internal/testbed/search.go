package testbed

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ProcessesWith looks for text in a file of /proc that every process has, such as
// environ, in which a NUL ends each entry, and returns the paths. It finds nothing
// where there is no /proc, nor in what it may not read.
func ProcessesWith(file, text string) []string {
	var found []string
	eachProcess(file, text, func(path string, _ []byte) { found = append(found, path) })
	return found
}

// CommandLines are those of the processes of this machine that show text on theirs:
// the process's id, a colon, and its arguments with a space before each.
func CommandLines(text string) []string {
	var found []string
	eachProcess("cmdline", text, func(path string, line []byte) {
		arguments := strings.ReplaceAll(strings.TrimSuffix(string(line), "\x00"), "\x00", " ")
		found = append(found, filepath.Base(filepath.Dir(path))+": "+arguments)
	})
	return found
}

func eachProcess(file, text string, found func(path string, content []byte)) {
	paths, _ := filepath.Glob("/proc/[0-9]*/" + file)
	for _, path := range paths {
		// One that cannot be read has ended, or is somebody else's.
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found(path, b)
		}
	}
}

// FilesWith are the regular files in dir, and in the folders below it, that have
// text in them. What goes away meanwhile has none.
func FilesWith(tb testing.TB, dir, text string) []string {
	tb.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // it goes away meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return nil
	})
	require.NoError(tb, err)
	return found
}
