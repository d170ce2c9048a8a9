package connector

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/connector/internal/sshtest"
)

// newRepository makes a bare repository with one branch.
func newRepository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "app.git")
	script := `set -e
git init -q --bare -b main "$0"
tree=$(git -C "$0" write-tree)
commit=$(git -C "$0" -c user.name=t -c user.email=t@example.invalid commit-tree -m first "$tree")
git -C "$0" update-ref refs/heads/main "$commit"`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		testbed.Unavailable(t, "git", "%s", out)
	}
	return dir
}

// Git over SSH is tested with a real sshd: the host key, the key of the user, and the repository (rule G3).
func TestGitOverSSH(t *testing.T) {
	t.Parallel()
	s, repo := sshtest.Start(t), newRepository(t)
	with := func(change func(*connector)) connector {
		c := connector{
			Kind: kindGit, Address: "ssh://" + s.User + "@" + s.Address + repo,
			Secrets: map[string]string{secretKey: s.Key}, Options: map[string]string{optionKnownHosts: s.KnownHosts},
		}
		change(&c)
		return c
	}
	r := try(t, with(func(*connector) {}))
	assert.Equal(t, "connection host_key authentication permission", steps(t, r))
	assert.Contains(t, r.Steps[len(r.Steps)-1].Message, "which has 2 refs") // HEAD and main
	assert.True(t, try(t, with(func(c *connector) { c.Options[optionAccess] = "write" })).OK)

	wrong, wrongKey := sshtest.NewKey(t)
	for name, c := range map[string]struct {
		change                func(*connector)
		step, message, remedy string
	}{
		"wrong host key": {func(c *connector) {
			c.Options[optionKnownHosts] = knownhosts.Line([]string{knownhosts.Normalize(s.Address)}, wrong)
		}, stepHostKey, "is not the known one: the server has ssh-ed25519 SHA256:", "no secret was sent"},
		"no host key": {func(c *connector) { delete(c.Options, optionKnownHosts) }, stepHostKey, "has no key of 127.0.0.1 to compare with", s.KnownHosts},
		"other hosts only": {func(c *connector) {
			c.Options[optionKnownHosts] = "git.example " + strings.SplitN(s.KnownHosts, " ", 2)[1]
		}, stepHostKey,
			"known_hosts has no key of 127.0.0.1", "add a line"},
		"wrong key":        {func(c *connector) { c.Secrets[secretKey] = wrongKey }, stepAuthentication, "rejects the key SHA256:", "add the public half"},
		"wrong path":       {func(c *connector) { c.Address += "x" }, stepPermission, "does not give the repository", "correct the path"},
		"not SSH":          {func(c *connector) { c.Address = "ssh://git@" + serveHTTP(t, ok).Listener.Addr().String() + "/x" }, stepHostKey, "does not speak SSH", "port"},
		"no repository":    {func(c *connector) { c.Address = "ssh://git@" + s.Address }, stepAddress, "names no repository", "option repository"},
		"no known hosts":   {func(c *connector) { c.Options[optionKnownHosts] = "x" }, stepAddress, "known_hosts is not valid", "ssh-keyscan"},
		"metadata address": {func(c *connector) { c.Address = "ssh://git@169.254.169.254/x" }, stepConnection, "metadata service", "address of the system"},
	} {
		t.Run(name, func(t *testing.T) {
			f := failed(t, try(t, with(c.change)))
			assert.Equal(t, c.step, f.Name, "%+v", f)
			assert.Contains(t, f.Message, c.message)
			assert.Contains(t, f.Remedy, c.remedy)
		})
	}
}
