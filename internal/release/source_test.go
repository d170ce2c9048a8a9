package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newClone makes a repository with one commit.
func newClone(t *testing.T) (dir string, git func(args ...string)) {
	t.Helper()
	dir = t.TempDir()
	git = func(args ...string) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.invalid"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=1700000000 +0900", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("one"), 0o600))
	git("add", ".")
	git("commit", "-q", "-m", "one")
	return dir, git
}

// A release is made from a commit: another state of the files could not be repeated.
func TestAReleaseIsMadeFromACommit(t *testing.T) {
	t.Parallel()
	dir, git := newClone(t)
	src, err := readSource(t.Context(), dir, "v1.2.3", false)
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9a-f]{40}$`, src.revision)
	assert.Equal(t, time.Unix(1700000000, 0).UTC(), src.date)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
	_, err = readSource(t.Context(), dir, "v1.2.3", false)
	require.ErrorContains(t, err, "?? new")
	changed, err := readSource(t.Context(), dir, "v1.2.3", true)
	require.NoError(t, err)
	assert.Equal(t, src.revision+"-dirty", changed.revision)

	git("tag", "-a", "-m", "v1.2.3", "v1.2.3")
	git("add", ".")
	git("commit", "-q", "-m", "two")
	_, err = readSource(t.Context(), dir, "v1.2.3", false)
	require.ErrorContains(t, err, "check the tag out")
	_, err = readSource(t.Context(), dir, "v1.2.4", false)
	require.NoError(t, err)

	_, err = readSource(t.Context(), t.TempDir(), "v1.2.3", false)
	require.ErrorContains(t, err, "set REVISION to the commit's hash and SOURCE_DATE_EPOCH to its time")
}

// The versions have the form that Go, the delegates and the packages understand.
func TestVersionsOfReleases(t *testing.T) {
	t.Parallel()
	for version, valid := range map[string]bool{
		"v1.2.3": true, "v0.0.1-rc.1": true, "1.2.3": false, "v1.2": false, "v1.2.3+x": false, "v01.2.3": false, "v1.2.3/../x": false, "": false,
	} {
		assert.Equal(t, valid, validVersion.MatchString(version), version)
	}
}

// A release that exists stays as it is, and the newest version is not replaced by an older one or a candidate.
func TestWhatExistsStays(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	stable := func() string {
		text, err := os.ReadFile(filepath.Join(out, "stable"))
		require.NoError(t, err)
		return string(text)
	}
	for _, step := range []struct{ version, want string }{{"v1.9.0", "v1.9.0\n"}, {"v1.10.0", "v1.10.0\n"}, {"v1.9.1", "v1.10.0\n"}, {"v2.0.0-rc.1", "v1.10.0\n"}} {
		r := &release{source: source{version: step.version}, out: out}
		require.NoError(t, r.point())
		assert.Equal(t, step.want, stable())
	}
	require.NoError(t, os.Mkdir(filepath.Join(out, "v1.9.0"), 0o700))
	r := &release{source: source{version: "v1.9.0"}, out: out}
	require.ErrorContains(t, r.make(t.Context()), "a published release never changes")
}

// The key of an operator is read from a file, and its password not from the command line.
func TestSigningKeys(t *testing.T) {
	file, public := newKey(t)
	t.Setenv(passwordVariable, "wrong")
	_, err := readKey(file)
	require.ErrorContains(t, err, "is the password right?")
	t.Setenv(passwordVariable, testPassword)
	key, err := readKey(file)
	require.NoError(t, err)
	assert.True(t, public.Equal(key.Public()))

	require.NoError(t, os.Unsetenv(passwordVariable)) // t.Setenv restores it
	_, err = readKey(file)
	require.ErrorContains(t, err, "set "+passwordVariable+", or run the command in a terminal")

	plain := filepath.Join(t.TempDir(), "plain.key")
	text, err := key.MarshalText()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(plain, text, 0o600))
	_, err = readKey(plain)
	require.NoError(t, err)

	text, err = public.MarshalText()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(plain, text, 0o600))
	_, err = readKey(plain)
	require.ErrorContains(t, err, "name the secret key")
	_, err = readKey(filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "signing key")

	message := filepath.Join(t.TempDir(), "SHA256SUMS")
	require.NoError(t, os.WriteFile(message, []byte("sums"), 0o600))
	require.NoError(t, sign(message, key, "dlite v1.2.3"))
	signature, err := os.ReadFile(message + ".minisig")
	require.NoError(t, err)
	assert.True(t, minisign.Verify(public, []byte("sums"), signature))
	assert.False(t, minisign.Verify(public, []byte("other"), signature))
}
