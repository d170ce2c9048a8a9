package gitremote

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

func TestNamesOfRefs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"main", "feature/x-1", "refs/pull/7/head", "ünïcode", "a@b", "v1.0"} {
		require.True(t, IsRef(good), good)
	}
	for _, bad := range []string{"-x", "+x", "a b", "a:b", "a..b", "a~1", "a^", "x*", "a?", "[a", `a\b`, "a//b", "/a", "a/", ".a", "a/.b", "a.lock", "a.", "@", "a@{1}", "a\nb"} {
		require.False(t, IsRef(bad), bad)
	}
}

// Rule S5: the environment contains the credentials. The URL, which is on command lines, and the
// configuration, which is on disk, do not.
func TestCredentialsAreRemovedFromTheURL(t *testing.T) {
	t.Parallel()
	r, err := New(&stage.Clone{URL: "https://me:visibly-fake@git.example:8443/x.git"})
	require.NoError(t, err)
	require.Equal(t, "https://git.example:8443/x.git", r.URL)
	require.Equal(t, []string{"visibly-fake"}, r.Secrets())
	require.NotContains(t, r.config(), "visibly-fake")
	require.Contains(t, r.config(), `[credential "https://git.example:8443"]`)
	env := r.Environment("/nowhere")
	require.Equal(t, "visibly-fake", env[gitPassword])
	require.Equal(t, "/nowhere", env["HOME"])
	delete(env, gitPassword)
	for _, v := range env {
		require.False(t, strings.Contains(v, "visibly-fake"))
	}
}
