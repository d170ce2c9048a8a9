package kubernetes_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

const gitPassword = "visibly-fake-of-git"

// largeObject is the content of a file that the repository of [newGitServer] stores with Git
// LFS, under the name "large.bin".
const largeObject = "content outside of git\n"

// newGitServer serves a repository to pods that know the password, and returns its address.
// It has the branches trunk and side; a file in each has the branch's name.
func newGitServer(t *testing.T, p *place) string {
	t.Helper()
	programs, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		testbed.Unavailable(t, "git", "not found")
	}
	root := t.TempDir()
	quiet := append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	script := `
git init -q -b trunk project && cd project
git config user.name Test && git config user.email test@example.invalid
for branch in trunk side; do
  git checkout -q -B $branch && echo $branch >file && echo "$POINTER" >large.bin
  echo '*.bin filter=lfs diff=lfs merge=lfs -text' >.gitattributes
  git add . && git commit -q -m $branch
done
git checkout -q trunk`
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(largeObject)))
	cmd.Dir, cmd.Env = root, append(quiet, fmt.Sprintf(
		"POINTER=version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d", id, len(largeObject)))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != gitPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/project/.git/info/lfs/objects/batch":
			w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
			_, _ = fmt.Fprintf(w, `{"transfer":"basic","objects":[{"oid":%q,"size":%d,"actions":{"download":{"href":"http://%s/objects/%[1]s"}}}]}`,
				id, len(largeObject), r.Host)
		case "/objects/" + id:
			_, _ = io.WriteString(w, largeObject)
		default:
			backend.ServeHTTP(w, r)
		}
	}))
	_ = srv.Listener.Close()
	srv.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(p.HostIP, "0"))
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL + "/project/.git"
}

// Rules D7, S5: a repository is checked out before the first step, by the git of a separate
// image, in a separate container or in that of the hub. No object of the cluster, no log and
// no file of the checkout has the credentials.
func TestStepsFindTheClone(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	address := newGitServer(t, p)
	image := p.Debian(t, "git")
	apart := p.driver(t, func(c *kubernetes.Config) { c.GitImage = image })
	inHub := p.driver(t, func(c *kubernetes.Config) {
		// an image that has git beside the agent
		c.PodTemplate = fmt.Appendf(nil, `{"spec":{"initContainers":[{"name":"install","image":%q}]}}`, c.AgentImage)
		c.AgentImage = image
	})
	for name, c := range map[string]struct {
		d     *kubernetes.Driver
		clone stage.Clone
		want  string
	}{
		"by the hub": {inHub, stage.Clone{URL: address, Auth: &stage.Auth{Username: "user", Password: gitPassword}}, "trunk"},
		"default":    {apart, stage.Clone{URL: address, Auth: &stage.Auth{Username: "user", Password: gitPassword}}, "trunk"},
		"branch":     {apart, stage.Clone{URL: address, Branch: "side", Depth: 1, Auth: &stage.Auth{Username: "user", Password: gitPassword}}, "side"},
		"in the url": {apart, stage.Clone{URL: strings.Replace(address, "//", "//user:"+gitPassword+"@", 1), Dir: "below"}, "trunk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := p.begin(t, c.d, func(env *driver.Environment) {
				env.Clone = &c.clone
				env.Files = []*stage.File{{Path: "/workspace/ours", Data: "ours\n"}}
			})
			inspect := p.sh("inspect", "cat ours; cd /workspace/"+c.clone.Dir+" && cat file; grep -r '"+gitPassword+"' /workspace || echo clean")
			assert.Equal(t, "ours\n"+c.want+"\nclean\n", tx.run(t, inspect))
			// The git of another program works with it too.
			status := p.sh("status", "cd /workspace/"+c.clone.Dir+" && git status --short --branch --untracked-files=no && git remote get-url origin")
			status.Image = image
			assert.Contains(t, tx.run(t, status), address)
			assert.Contains(t, tx.log.String(), "Checked out ")
			texts := map[string]string{
				"the log":    tx.log.String(),
				"an object":  p.kubectl(t, "get", "pods,secrets,configmaps,events", "--output", "yaml"),
				"the record": recorded(tx.ledger),
			}
			for _, name := range strings.Fields(p.kubectl(t, "get", "pod", tx.pod(t), "--output", "jsonpath={.spec.containers[*].name}")) {
				texts["container "+name] = p.kubectl(t, "logs", tx.pod(t), "--container", name)
			}
			for what, text := range texts {
				assert.NotContains(t, text, gitPassword, what)
			}
		})
	}
}

func recorded(l *ledger) string {
	var all strings.Builder
	for _, r := range l.all() {
		all.WriteString(r.ID + " " + string(r.Data) + "\n")
	}
	return all.String()
}

// Rule D7: the init returns the error of a failed clone, without its credentials.
func TestAFailedCloneReturnsTheErrorOfGit(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	address := newGitServer(t, p)
	d := p.driver(t, func(c *kubernetes.Config) { c.GitImage = p.Debian(t, "git") })
	good := &stage.Auth{Username: "user", Password: gitPassword}
	for name, c := range map[string]struct {
		clone stage.Clone
		want  string
	}{
		"ref":      {stage.Clone{URL: address, Branch: "none", Auth: good}, "the repository has no branch none"},
		"password": {stage.Clone{URL: address, Auth: &stage.Auth{Username: "user", Password: "wrong-" + gitPassword}}, "authentication failed"},
		"host":     {stage.Clone{URL: "http://no-such.invalid/project", Auth: good}, "no-such.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := p.prepare(t, d, func(env *driver.Environment) { env.Clone = &c.clone })
			err := tx.init(t)
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), gitPassword)
			assert.NotContains(t, tx.log.String(), gitPassword)
		})
	}
}

// Rule D7: objects of Git LFS are fetched if the clone asks for them, with its credentials,
// by an image that has git-lfs, also without root.
func TestACloneFetchesLargeObjects(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	p.enforce(t)
	address := newGitServer(t, p)
	image := p.Debian(t, "git", "git-lfs")
	d := p.driver(t, restricted, func(c *kubernetes.Config) { c.GitImage = image })
	for name, c := range map[string]struct {
		lfs  bool
		want string
	}{"wanted": {true, largeObject}, "not wanted": {false, "version https://git-lfs.github.com/spec/v1\n"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := p.begin(t, d, func(env *driver.Environment) {
				env.Clone = &stage.Clone{URL: address, LFS: c.lfs, Auth: &stage.Auth{Username: "user", Password: gitPassword}}
			})
			inspect := p.sh("inspect", "head -n 1 large.bin; grep -r '"+gitPassword+"' /workspace || echo clean")
			assert.Equal(t, c.want+"clean\n", tx.run(t, inspect))
			assert.NotContains(t, tx.log.String(), gitPassword)
			// A file that differs from the repository would be reported as a change.
			status := p.sh("status", "git status --short && git lfs ls-files")
			status.Image = image
			assert.NotContains(t, tx.run(t, status), " M ")
		})
	}
	plain := p.Debian(t, "git")
	tx := p.prepare(t, p.driver(t, restricted, func(c *kubernetes.Config) { c.GitImage = plain }), func(env *driver.Environment) {
		env.Clone = &stage.Clone{URL: address, LFS: true, Auth: &stage.Auth{Username: "user", Password: gitPassword}}
	})
	err := tx.init(t)
	require.ErrorContains(t, err, "git-lfs is not in the PATH")
	require.ErrorContains(t, err, plain)
}

// Rule D7: in a restricted pod, the user of the steps owns the checkout. Steps can use git in
// it and write to its directories.
func TestACloneOfARestrictedPodBelongsToTheUserOfTheSteps(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	p.enforce(t)
	address := newGitServer(t, p)
	image := p.Debian(t, "git")
	d := p.driver(t, restricted, func(c *kubernetes.Config) { c.GitImage = image })
	for dir, users := range map[string][]string{"": {"", "4321:4321"}, "below": {""}} {
		t.Run("dir "+dir, func(t *testing.T) {
			t.Parallel()
			tx := p.begin(t, d, func(env *driver.Environment) {
				env.Clone = &stage.Clone{URL: address, Dir: dir, Auth: &stage.Auth{Username: "user", Password: gitPassword}}
			})
			for i, user := range users {
				work := p.sh("work", "cd /workspace/"+dir+" && cat file && git status --short && git log --format=%s && { [ -e new ] || touch new; }")
				work.ID, work.Image, work.User = fmt.Sprint("work", i), image, user
				assert.Equal(t, "trunk\n"+strings.Repeat("?? new\n", i)+"trunk\n", tx.run(t, work), user)
			}
		})
	}
}
