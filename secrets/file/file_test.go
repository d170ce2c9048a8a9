package file_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hush = "hush-hush"

// folder has files of every form, and next to it one that is nobody's business.
func folder(t *testing.T) (dir string, p *file.Provider) {
	t.Helper()
	base := t.TempDir()
	dir = filepath.Join(base, "secrets")
	for name, text := range map[string]string{
		"outside": hush, "secrets/token": "value\n", "secrets/crlf": "value\r\n", "secrets/two": "a\n\n", "secrets/empty": "",
		"secrets/team/ci.env":  "# comment\nA=value\nQ=\"with \\\"quotes\\\"\"\nexport E=exported\nH='a#b'\n",
		"secrets/team/ci.json": `{"db":{"password":"deep","n":12345678901234567890}}`,
		"secrets/ci.yaml":      "db:\n  password: deep\n  multi: |\n    one\n    two\n  n: 42\n  list: [x, {y: z}]\nnothing: null\n",
		"secrets/ci.YML":       "a: upper\n", "secrets/bad.yaml": "a: [" + hush, "secrets/bad.env": "=" + hush + "\n\"", "secrets/bad.json": hush,
		"secrets/large": strings.Repeat("x", file.MaxSize+1), "secrets/..data/t": "mounted",
	} {
		path := filepath.Join(base, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	p, err := file.New(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return dir, p
}

func fetch(t *testing.T, p secrets.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(t.Context(), u)
}

// SPEC S1.
func TestFetchesFilesAndTheirFields(t *testing.T) {
	t.Parallel()
	_, p := folder(t)
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

func TestWhatCannotBeReadIsSaidWithoutAValue(t *testing.T) {
	t.Parallel()
	_, p := folder(t)
	for ref, want := range map[string]string{
		"file://none": "no such file", "file://team/ci.env#NONE": `no field "NONE"`, "file://ci.yaml#x": `no field "x"`, "file://ci.yaml#nothing": "is null",
		"file://bad.yaml#a": "the file is not YAML", "file://bad.env#a": "the file is not in dotenv form", "file://bad.json#a": "it is not JSON",
		"file://token#a": `the ending "" has no fields`, "file://large": "larger than 1048576 bytes", "file://team": "not a regular file",
		"file://": "must be of the form", "file://token?x=1": "must be of the form",
		"file://../outside": "must lie in the folder", "file://team/../../outside": "must lie in the folder", "file:////etc/hostname": "must lie in the folder",
		"file://team/%2e%2e/token": "must lie in the folder",
	} {
		v, err := fetch(t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.Empty(t, v)
		assert.NotContains(t, err.Error(), hush, ref)
	}
	_, err := file.New(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Links within the folder work, as mounted secrets need them; others do not.
func TestLinksDoNotLeadOutOfTheFolder(t *testing.T) {
	t.Parallel()
	dir, p := folder(t)
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skipf("this machine makes no links: %v", err)
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

// A pipe that nobody writes to would hold the task up.
func TestAPipeIsRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there are none of this kind")
	}
	dir, p := folder(t)
	require.NoError(t, exec.CommandContext(t.Context(), "mkfifo", filepath.Join(dir, "pipe")).Run())
	_, err := fetch(t, p, "file://pipe")
	assert.ErrorContains(t, err, "not a regular file")
}

func TestAFileIsReadAnewForEveryTask(t *testing.T) {
	t.Parallel()
	dir, p := folder(t)
	for _, want := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(want), 0o600))
		v, err := fetch(t, p, "file://token")
		require.NoError(t, err)
		assert.Equal(t, want, v)
	}
}
