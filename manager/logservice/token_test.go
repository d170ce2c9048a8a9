package logservice_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/logservice"
)

var fakeKey = []byte("fake-key-fake-key-fake-key-fake-")

func TestATokenAllowsTheActionsItNames(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := logservice.SignerAt(fakeKey, func() time.Time { return now })
	hour := now.Add(time.Hour)
	whole := s.Issue(logservice.Grant{Account: "acc", Expires: hour})
	stage := s.Issue(logservice.Grant{Account: "acc", Prefix: "build-1", Expires: hour})
	slash := s.Issue(logservice.Grant{Account: "acc", Prefix: "build-1/", Expires: hour})
	reader := s.Issue(logservice.Grant{Account: "acc", ReadOnly: true, Expires: hour})
	late := s.Issue(logservice.Grant{Account: "acc", Expires: now.Add(-time.Second)})
	noAccount := s.Issue(logservice.Grant{Expires: hour})
	other := logservice.NewSigner([]byte(strings.Repeat("another fake key", 2))).Issue(logservice.Grant{Account: "acc", Expires: hour})
	for _, tt := range []struct {
		what, account, key, token string
		write, want               bool
	}{
		{"the account's token", "acc", "any/key", whole, true, true},
		{"another account", "other", "any/key", whole, false, false},
		{"no account", "", "any/key", noAccount, false, false},
		{"a step of the stage", "acc", "build-1/step", stage, true, true},
		{"the stage itself", "acc", "build-1", stage, true, true},
		{"a stage whose name begins alike", "acc", "build-10/step", stage, true, false},
		{"another stage", "acc", "build-2/step", stage, false, false},
		{"a prefix with its slash", "acc", "build-1/step", slash, true, true},
		{"the folder of a prefix with its slash", "acc", "build-1", slash, true, false},
		{"reading with a reader's token", "acc", "k", reader, false, true},
		{"writing with a reader's token", "acc", "k", reader, true, false},
		{"a token that has expired", "acc", "k", late, false, false},
		{"a token of another key", "acc", "k", other, false, false},
		{"no token", "acc", "k", "", false, false},
		{"a token cut short", "acc", "k", whole[:len(whole)-1], false, false},
		{"half a token", "acc", "k", strings.Split(whole, ".")[0], false, false},
		{"halves of two tokens", "acc", "k", strings.Split(whole, ".")[0] + "." + strings.Split(stage, ".")[1], false, false},
	} {
		assert.Equal(t, tt.want, s.Authorize(logservice.Access{
			Account: tt.account, Key: tt.key, Token: tt.token, Write: tt.write,
		}), tt.what)
	}
	now = hour
	assert.False(t, s.Authorize(logservice.Access{Account: "acc", Key: "k", Token: whole}), "an hour later")
	assert.Panics(t, func() { logservice.NewSigner([]byte("short")) })
}

// Through the server: an upload link is not valid as a token, and a token is not valid
// as a link.
func TestTheServerAsksForAccessToTheLog(t *testing.T) {
	t.Parallel()
	s := logservice.NewSigner(fakeKey)
	b := setUp(t, func(c *logservice.Config) { c.Authorize, c.Key = s.Authorize, fakeKey })
	issue := func(g logservice.Grant) []string {
		g.Account, g.Expires = "acc", time.Now().Add(time.Hour)
		return []string{"X-Harness-Token", s.Issue(g)}
	}
	writer, reader := issue(logservice.Grant{Prefix: "run"}), issue(logservice.Grant{ReadOnly: true})
	b.ok("PUT", "/stream"+query, lines(0, "a\n"), writer...)
	for _, call := range []string{"PUT /stream", "POST /stream", "DELETE /stream", "POST /blob", "POST /blob/link/upload"} {
		method, path, _ := strings.Cut(call, " ")
		status, text := b.do(method, path+query, "[]", reader...)
		assert.Equal(t, 401, status, call)
		assert.Contains(t, text, "no access to this log")
	}
	status, _ := b.do("PUT", "/stream?accountID=acc&key=other", lines(0, "a\n"), writer...)
	assert.Equal(t, 401, status)
	b.ok("DELETE", "/stream"+query, "", writer...)
	assert.Equal(t, []string{"a\n"}, outs(t, b.ok("GET", "/blob"+query, "", reader...)))

	link := b.ok("POST", "/blob/link/upload"+query, "", writer...)
	sealed := strings.Split(strings.Split(link, "/blob/upload/")[1], `"`)[0]
	status, _ = b.do("GET", "/blob"+query, "", "X-Harness-Token", sealed)
	assert.Equal(t, 401, status)
	status, _ = b.do("PUT", "/blob/upload/"+writer[1], "x", "X-Harness-Token", "")
	assert.Equal(t, 403, status)
}

func TestAKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "key")
	key, err := logservice.LoadKey(path)
	require.NoError(t, err)
	again, err := logservice.LoadKey(path)
	require.NoError(t, err)
	assert.Equal(t, key, again)
	assert.Len(t, key, 32)
	info, err := os.Stat(path)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.NoError(t, os.WriteFile(path, []byte("torn"), 0o600))
	_, err = logservice.LoadKey(path)
	require.ErrorContains(t, err, "does not contain a key")
	assert.NotContains(t, err.Error(), "torn")
}
