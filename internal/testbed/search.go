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

// ProcessesWith searches for text in a file of every process in /proc, such as environ, whose
// entries end with a NUL. It returns the paths. It finds nothing on systems without /proc, nor
// in files that it may not read.
func ProcessesWith(file, text string) []string {
	var found []string
	eachProcess(file, text, func(path string, _ []byte) { found = append(found, path) })
	return found
}

// CommandLines returns the command lines of this machine that contain text: the process's id,
// a colon, and its arguments with a space before each.
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
		// A file that cannot be read belongs to another user, or its process has ended.
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found(path, b)
		}
	}
}

// FilesWith returns the regular files in dir, and in the directories below it, that contain
// text. It skips files that are removed meanwhile.
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
