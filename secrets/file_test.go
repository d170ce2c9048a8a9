package secrets_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

const hush = "hush-hush"

// secretFiles returns a directory with files of each format, and a provider for it.
// A file next to the directory must stay out of reach.
func secretFiles(t *testing.T) (dir string, p secrets.Provider) {
	t.Helper()
	base := t.TempDir()
	dir = filepath.Join(base, "secrets")
	for name, text := range map[string]string{
		"outside": hush, "secrets/token": "value\n", "secrets/crlf": "value\r\n", "secrets/two": "a\n\n", "secrets/empty": "",
		"secrets/team/ci.env":  "# comment\nA=value\nQ=\"with \\\"quotes\\\"\"\nexport E=exported\nH='a#b'\n",
		"secrets/team/ci.json": `{"db":{"password":"deep","n":12345678901234567890}}`,
		"secrets/ci.yaml":      "db:\n  password: deep\n  multi: |\n    one\n    two\n  n: 42\n  list: [x, {y: z}]\nnothing: null\n",
		"secrets/ci.YML":       "a: upper\n", "secrets/bad.yaml": "a: [" + hush, "secrets/bad.env": "=" + hush + "\n\"", "secrets/bad.json": hush,
		"secrets/large": strings.Repeat("x", 1<<20+1), "secrets/..data/t": "mounted",
	} {
		path := filepath.Join(base, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	p, err := secrets.File(dir)
	require.NoError(t, err)
	return dir, p
}

// Rule S1.
func TestFileFetchesFilesAndTheirFields(t *testing.T) {
	t.Parallel()
	_, p := secretFiles(t)
	for ref, want := range map[string]string{
		"file://token": "value", "file:///token": "value", "file://crlf": "value", "file://two": "a\n", "file://empty": "",
		"file://team/ci.env#A": "value", "file://team/ci.env#Q": `with "quotes"`, "file://team/ci.env#E": "exported", "file://team/ci.env#H": "a#b",
		"file://team/ci.json#db.password": "deep", "file://team/ci.json#db.n": "12345678901234567890",
		"file://ci.yaml#db.password": "deep", "file://ci.yaml#db.multi": "one\ntwo\n", "file://ci.yaml#db.n": "42", "file://ci.yaml#db.list.1.y": "z",
		"file://ci.YML#a": "upper", "file://team/ci.json": `{"db":{"password":"deep","n":12345678901234567890}}`,
	} {
		v, err := fetch(t, p, ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, v, ref)
	}
}

func TestFileErrorsShowNoValue(t *testing.T) {
	t.Parallel()
	_, p := secretFiles(t)
	for ref, want := range map[string]string{
		"file://none": "no such file", "file://team/ci.env#NONE": `no field "NONE"`, "file://ci.yaml#x": `no field "x"`, "file://ci.yaml#nothing": "is null",
		"file://bad.yaml#a": "the file is not YAML", "file://bad.env#a": "the file is not a dotenv file", "file://bad.json#a": "it is not JSON",
		"file://token#a": `the extension "" has no fields`, "file://large": "larger than 1048576 bytes", "file://team": "not a regular file",
		"file://": "must be of the form", "file://token?x=1": "must be of the form",
		"file://../outside": "must lie in the directory", "file://team/../../outside": "must lie in the directory", "file:////etc/hostname": "must lie in the directory",
		"file://team/%2e%2e/token": "must lie in the directory",
	} {
		v, err := fetch(t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.Empty(t, v)
		assert.NotContains(t, err.Error(), hush, ref)
	}
	_, err := secrets.File(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Links inside the directory work, because mounted secrets need them.
func TestFileFollowsNoLinkOutOfTheDirectory(t *testing.T) {
	t.Parallel()
	dir, p := secretFiles(t)
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skipf("this machine has no symbolic links: %v", err)
		}
	}
	link("..data/t", "inside")
	link(filepath.Join("..", "outside"), "out")
	link(filepath.Join(filepath.Dir(dir), "outside"), "absolute")
	link("..", "up")

	v, err := fetch(t, p, "file://inside")
	require.NoError(t, err)
	assert.Equal(t, "mounted", v)
	for _, ref := range []string{"file://out", "file://absolute", "file://up/outside"} {
		_, err := fetch(t, p, ref)
		require.Error(t, err, ref)
		assert.NotContains(t, err.Error(), hush)
	}
}

// Opening a pipe without a writer would block the task.
func TestFileRefusesAPipe(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no named pipes in directories")
	}
	dir, p := secretFiles(t)
	require.NoError(t, exec.CommandContext(t.Context(), "mkfifo", filepath.Join(dir, "pipe")).Run())
	_, err := fetch(t, p, "file://pipe")
	assert.ErrorContains(t, err, "not a regular file")
}

func TestFileReadsAgainForEachTask(t *testing.T) {
	t.Parallel()
	dir, p := secretFiles(t)
	for _, want := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(want), 0o600))
		v, err := fetch(t, p, "file://token")
		require.NoError(t, err)
		assert.Equal(t, want, v)
	}
}

func TestFileKeepsItsDirectoryIfTheProcessChangesTheWorkingDirectory(t *testing.T) {
	dir, _ := secretFiles(t)
	t.Chdir(filepath.Dir(dir))
	p, err := secrets.File("secrets")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	v, err := fetch(t, p, "file://token")
	require.NoError(t, err)
	assert.Equal(t, "value", v)
}
