//go:build unix

package source

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/task/connector/internal/sshtest"
)

// sshConfig configures polls of a repository at a server.
func sshConfig(s *sshtest.Server, path string) source.GitConfig {
	return source.GitConfig{
		URL: "ssh://" + s.User + "@" + s.Address + path, Auth: &source.Auth{Key: s.Key}, HostKeys: s.KnownHosts, Branches: []string{"main"}, Tags: []string{"**"},
	}
}

// Rule G1, over SSH with git's own server program: polls share a connection, and a server that started anew is
// connected to again.
func TestPollsOverSSHShareConnections(t *testing.T) {
	t.Parallel()
	git(t, t.TempDir(), "--version")
	server := sshtest.Start(t)
	dir := repo(t, filepath.Join(t.TempDir(), "it's app"))
	s := New(Config{})
	t.Cleanup(s.Close)
	w := watch(t, s, source.TypeGit, sshConfig(server, dir))
	poll[source.GitEvent](w)
	two := commit(t, dir, "second")
	git(t, dir, "tag", "-a", "-m", "annotated", "v2")
	events := poll[source.GitEvent](w)
	require.Len(t, events, 2)
	assert.Equal(t, two, events[0].New)
	assert.Equal(t, two, events[1].New)
	assert.Equal(t, 1, server.Accepted(), "one connection")
	var polls sync.WaitGroup
	for range 30 {
		polls.Go(func() {
			_, err := watch(t, s, source.TypeGit, sshConfig(server, dir)).try(t.Context())
			assert.NoError(t, err)
		})
	}
	polls.Wait()
	assert.LessOrEqual(t, server.Accepted(), 4, "for 16 polls at a time, with 6 in a connection")

	s.ssh.mu.Lock()
	for _, conns := range s.ssh.conns {
		for _, c := range conns {
			_ = c.client.Close()
		}
	}
	s.ssh.mu.Unlock()
	assert.Empty(t, poll[source.GitEvent](w), "a lost connection is replaced")
}

// A server without version 2 lists everything.
func TestSSHServersWithoutVersion2(t *testing.T) {
	t.Parallel()
	git(t, t.TempDir(), "--version")
	server := sshtest.Start(t, "AcceptEnv NOTHING", "SetEnv GIT_PROTOCOL=version=0")
	dir := repo(t, filepath.Join(t.TempDir(), "app"))
	s := New(Config{})
	t.Cleanup(s.Close)
	w := watch(t, s, source.TypeGit, sshConfig(server, dir))
	poll[source.GitEvent](w)
	two := commit(t, dir, "second")
	events := poll[source.GitEvent](w)
	require.Len(t, events, 1)
	assert.Equal(t, two, events[0].New)
}

func TestSSHRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	server := sshtest.Start(t)
	dir := repo(t, filepath.Join(t.TempDir(), "app"))
	_, other := sshtest.NewKey(t)
	otherHost, _ := sshtest.NewKey(t)
	for expect, change := range map[string]func(*source.GitConfig){
		"unable to authenticate":      func(c *source.GitConfig) { c.Auth.Key = other },
		"private key in PEM":          func(c *source.GitConfig) { c.Auth.Key = "visibly-fake" },
		"needs the secret key":        func(c *source.GitConfig) { c.Auth = nil },
		"is not known: set host_keys": func(c *source.GitConfig) { c.HostKeys = "" },
		"in the form of known_hosts":  func(c *source.GitConfig) { c.HostKeys = "no line" },
		"refuses the repository":      func(c *source.GitConfig) { c.URL += "-missing" },
		"another server answers, or its key": func(c *source.GitConfig) {
			name, _, _ := strings.Cut(c.HostKeys, " ")
			c.HostKeys = name + " " + string(ssh.MarshalAuthorizedKey(otherHost))
		},
	} {
		s := New(Config{KnownHosts: filepath.Join(t.TempDir(), "none")})
		cfg := sshConfig(server, dir)
		change(&cfg)
		_, err := watch(t, s, source.TypeGit, cfg).try(t.Context())
		require.ErrorContains(t, err, expect)
		assert.NotContains(t, err.Error(), "visibly-fake")
		s.Close()
	}
}

func TestAddressesOfRepositories(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"git@example.invalid:team/app.git":       "ssh git@example.invalid:22 /~/team/app.git",
		"example.invalid:/srv/app":               "ssh git@example.invalid:22 /srv/app",
		"ssh://me@example.invalid:2222/srv/a b":  "ssh me@example.invalid:2222 /srv/a b",
		"https://example.invalid/team/app.git":   "https",
		"git@example.invalid":                    "",
		"/srv/app":                               "",
		"git://example.invalid/app":              "",
		"ext::sh -c date":                        "",
		"https://example.invalid/app?a=b":        "",
		"ssh://me:visibly-fake@example.invalid/": "",
	} {
		u, err := gitAddress(text)
		switch {
		case want == "":
			assert.Error(t, err, text)
		case !assert.NoError(t, err, text):
		case u.Scheme == "ssh":
			assert.Equal(t, want, "ssh "+sshUser(&source.GitConfig{}, u)+"@"+sshHost(u)+" "+u.Path, text)
		default:
			assert.Equal(t, want, u.Scheme, text)
		}
	}
}
