//go:build unix

package local_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"

	"github.com/delegate-io/dlite/internal/testbed"
)

const fakePassword = "not-a-real-password-123"

// gitServer serves the repositories of a directory over HTTP, with git's own server program.
type gitServer struct {
	*httptest.Server
	dir string
}

// newGitServer starts a server. If first is not nil, it gets each request and reports whether it has
// answered it.
func newGitServer(t *testing.T, first func(w http.ResponseWriter, r *http.Request) bool) *gitServer {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		testbed.Unavailable(t, "git", "there is none")
	}
	s := &gitServer{dir: workDir(t)}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + s.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first == nil || !first(w, r) {
			backend.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// locked requires the fake password.
func locked(w http.ResponseWriter, r *http.Request) bool {
	if _, password, _ := r.BasicAuth(); password == fakePassword {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// gitIn runs git without the machine's configuration.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=trunk",
		"-c", "protocol.file.allow=always", "-c", "safe.directory=*",
	}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

func commit(t *testing.T, dir, file, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-q", "-m", text)
	return gitIn(t, dir, "rev-parse", "HEAD")
}

// project is a repository with this history:
//
//	one - two (tag v1) - three   trunk
//	        \ side                branch side, refs/pull/7/head
//	            \ lost            no ref
type project struct {
	one, two, three, side, lost string
}

func (s *gitServer) addProject(t *testing.T, name string) project {
	t.Helper()
	dir := filepath.Join(s.dir, name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	gitIn(t, dir, "init", "-q")
	var p project
	p.one, p.two = commit(t, dir, "file", "one"), commit(t, dir, "file", "two")
	gitIn(t, dir, "tag", "-a", "-m", "first", "v1")
	gitIn(t, dir, "checkout", "-q", "-b", "side")
	p.side = commit(t, dir, "file", "side")
	gitIn(t, dir, "update-ref", "refs/pull/7/head", "HEAD")
	p.lost = commit(t, dir, "file", "lost")
	gitIn(t, dir, "reset", "-q", "--hard", "HEAD~1")
	gitIn(t, dir, "checkout", "-q", "trunk")
	p.three = commit(t, dir, "file", "three")
	return p
}

// clone runs an init with a clone and returns its log.
func (r *rig) clone(ctx context.Context, c stage.Clone) (string, error) {
	r.t.Helper()
	log := newBuffer()
	r.env.Clone, r.env.Log = &c, log
	err := r.d.Init(ctx, r.env, r.ledger)
	return log.String(), err
}

func (r *rig) cloned(c stage.Clone) string {
	r.t.Helper()
	log, err := r.clone(r.t.Context(), c)
	require.NoError(r.t, err, log)
	return log
}

func (r *rig) workspace() string {
	r.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(r.work, "*", "workspace"))
	require.NoError(r.t, err)
	require.Len(r.t, dirs, 1)
	return dirs[0]
}

// Rule D2: all fields that select a commit, over HTTP and from a path, from servers that offer any
// commit and from servers that offer only the tips of refs.
func TestInitClonesTheRequestedCommit(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"any commit": nil,
		"tips alone": func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Git-Protocol"); return false },
		"path":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newGitServer(t, first)
			p := s.addProject(t, "project")
			address := s.URL + "/project/.git"
			if name == "path" {
				address = filepath.Join(s.dir, "project")
			}
			for _, c := range []struct {
				name   string
				clone  stage.Clone
				head   string
				branch string
				count  string // number of commits
				fails  string // part of the error; "" for success
			}{
				{"default branch", stage.Clone{}, p.three, "trunk", "3", ""},
				{"branch", stage.Clone{Branch: "side"}, p.side, "side", "3", ""},
				{"full branch", stage.Clone{Branch: "refs/heads/side"}, p.side, "side", "3", ""},
				{"tag", stage.Clone{Tag: "v1"}, p.two, "", "2", ""},
				{"tag before branch", stage.Clone{Tag: "v1", Branch: "side"}, p.two, "", "2", ""},
				{"pull request", stage.Clone{Ref: "refs/pull/7/head"}, p.side, "", "3", ""},
				{"commit", stage.Clone{Commit: p.two}, p.two, "", "2", ""},
				{"commit of branch", stage.Clone{Commit: p.one, Branch: "side"}, p.one, "side", "1", ""},
				{"commit of pull request", stage.Clone{Commit: p.two, Ref: "refs/pull/7/head"}, p.two, "", "2", ""},
				{"shallow branch", stage.Clone{Branch: "side", Depth: 1}, p.side, "side", "1", ""},
				{"shallow default", stage.Clone{Depth: 2}, p.three, "trunk", "2", ""},
				{"shallow tag", stage.Clone{Tag: "v1", Depth: 1}, p.two, "", "1", ""},
				{"shallow commit", stage.Clone{Commit: p.one, Depth: 1}, p.one, "", "1", ""},
				{"cut off commit of branch", stage.Clone{Commit: p.one, Branch: "side", Depth: 1}, p.one, "side", "1", ""},
				{"commit of full branch", stage.Clone{Commit: p.two, Branch: "refs/heads/side"}, p.two, "side", "2", ""},
				{"deeper than history", stage.Clone{Depth: 50}, p.three, "trunk", "3", ""},
				{"subfolder", stage.Clone{Dir: "src/app"}, p.three, "trunk", "3", ""},
				{"mount's subfolder", stage.Clone{Dir: "/workspace/src"}, p.three, "trunk", "3", ""},

				{"no branch", stage.Clone{Branch: "none"}, "", "", "", "the repository has no branch none"},
				{"no tag", stage.Clone{Tag: "v9"}, "", "", "", "the repository has no tag v9"},
				{"no ref", stage.Clone{Ref: "refs/pull/8/head"}, "", "", "", "the repository has no ref refs/pull/8/head"},
				{"no commit", stage.Clone{Commit: strings.Repeat("ab", 20)}, "", "", "", "no commit abab"},
				{"commit of other branch", stage.Clone{Commit: p.three, Branch: "side"}, "", "", "", "is not part of branch side"},
				{"shallow commit of other branch", stage.Clone{Commit: p.three, Branch: "side", Depth: 50}, "", "", "", "is not part of branch side"},
			} {
				t.Run(c.name, func(t *testing.T) {
					r := newRig(t)
					c.clone.URL = address
					log, err := r.clone(t.Context(), c.clone)
					if c.fails != "" {
						require.ErrorContains(t, err, c.fails)
						require.ErrorContains(t, err, address)
						require.Contains(t, log, c.fails)
						return
					}
					require.NoError(t, err, log)
					dir := filepath.Join(r.workspace(), strings.TrimPrefix(c.clone.Dir, "/workspace"))
					assert.Equal(t, c.head, gitIn(t, dir, "rev-parse", "HEAD"))
					assert.Equal(t, c.branch, gitIn(t, dir, "branch", "--show-current"))
					assert.Equal(t, c.count, gitIn(t, dir, "rev-list", "--count", "HEAD"))
					assert.Equal(t, "", gitIn(t, dir, "status", "--porcelain"))
					assert.Equal(t, address, gitIn(t, dir, "remote", "get-url", "origin"))
					assert.Contains(t, log, "Checked out "+c.head[:7])
					// Only the working tree remains of the clone.
					left, err := filepath.Glob(filepath.Join(r.work, "*", "git-*"))
					require.NoError(t, err)
					assert.Empty(t, left)
				})
			}
		})
	}
}

func TestACloneChecksOutItsDirectories(t *testing.T) {
	t.Parallel()
	s := newGitServer(t, nil)
	s.addProject(t, "project")
	dir := filepath.Join(s.dir, "project")
	for _, d := range []string{"src/app", "docs", "big"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	commit(t, dir, "src/app/main.go", "main")
	commit(t, dir, "docs/page.md", "page")
	commit(t, dir, "big/data.bin", "data")
	tls := httptest.NewTLSServer(s.Config.Handler)
	t.Cleanup(tls.Close)
	for _, c := range []struct {
		clone stage.Clone
		want  []string
		fails string
	}{
		{stage.Clone{Sparse: []string{"src", "docs"}}, []string{"docs/page.md", "file", "src/app/main.go"}, ""},
		{stage.Clone{Sparse: []string{"*.md"}}, []string{"docs/page.md"}, ""},
		{stage.Clone{Sparse: []string{"--stdin"}}, nil, "sparse[0]"},
		{stage.Clone{URL: tls.URL}, nil, "certificate"},
		{stage.Clone{URL: tls.URL, SkipVerify: true, Sparse: []string{"docs"}}, []string{"docs/page.md", "file"}, ""},
	} {
		r := newRig(t)
		if c.clone.URL == "" {
			c.clone.URL = s.URL
		}
		c.clone.URL += "/project/.git"
		log, err := r.clone(t.Context(), c.clone)
		if c.fails != "" {
			require.ErrorContains(t, err, c.fails)
			continue
		}
		require.NoError(t, err, log)
		var got []string
		work := r.workspace()
		require.NoError(t, filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() == ".git" {
				return cmp.Or(err, fs.SkipDir)
			}
			if !d.IsDir() {
				rel, _ := filepath.Rel(work, path)
				got = append(got, rel)
			}
			return nil
		}))
		assert.Equal(t, c.want, got)
		assert.Empty(t, gitIn(t, work, "status", "--porcelain"))
	}
}

// A commit that no ref contains comes from servers that offer any commit. Elsewhere the error names
// it.
func TestInitClonesACommitWithoutARef(t *testing.T) {
	t.Parallel()
	any := newGitServer(t, nil)
	p := any.addProject(t, "project")
	r := newRig(t)
	r.cloned(stage.Clone{URL: any.URL + "/project/.git", Commit: p.lost})
	require.Equal(t, p.lost, gitIn(t, r.workspace(), "rev-parse", "HEAD"))

	tips := newGitServer(t, func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Git-Protocol"); return false })
	p = tips.addProject(t, "project")
	_, err := newRig(t).clone(t.Context(), stage.Clone{URL: tips.URL + "/project/.git", Commit: p.lost})
	require.ErrorContains(t, err, "no branch or tag that leads to it")
}

// Rules S5 and T8: only the server sees the credentials.
func TestOnlyTheServerGetsTheCredentialsOfAClone(t *testing.T) {
	t.Parallel()
	var lines atomic.Pointer[[]string]
	s := newGitServer(t, func(w http.ResponseWriter, r *http.Request) bool {
		all := commandLines(t)
		lines.Store(&all)
		return locked(w, r)
	})
	s.addProject(t, "project")
	for name, c := range map[string]stage.Clone{
		"auth": {URL: s.URL + "/project/.git", Auth: &stage.Auth{Username: "user", Password: fakePassword}},
		"url":  {URL: strings.Replace(s.URL, "//", "//user:"+fakePassword+"@", 1) + "/project/.git"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			log := r.cloned(c)
			require.NotContains(t, log, fakePassword)
			requireNowhere(t, r.work, fakePassword)
			requireNowhere(t, r.memory, fakePassword)
			require.Equal(t, s.URL+"/project/.git", gitIn(t, r.workspace(), "remote", "get-url", "origin"))
			require.NotEmpty(t, *lines.Load())
			for _, line := range *lines.Load() {
				require.NotContains(t, line, fakePassword)
			}
			for _, res := range r.ledger.records {
				require.NotContains(t, string(res), fakePassword)
			}
		})
	}
}

// commandLines returns the command lines of all git processes on this machine.
func commandLines(t *testing.T) []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	assert.NoError(t, err)
	var all []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "git") {
			all = append(all, string(b))
		}
	}
	if len(files) == 0 {
		return []string{"NOT TESTED: no /proc"}
	}
	return all
}

func requireNowhere(t *testing.T, dir, text string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NotContains(t, string(b), text, path)
		return err
	}))
}

// The error of a failed clone names the reason and never the credentials.
func TestCloneErrorsNameTheReasonWithoutTheSecret(t *testing.T) {
	t.Parallel()
	open, closed := newGitServer(t, nil), newGitServer(t, locked)
	talking := newGitServer(t, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		message := "ERR I know " + fakePassword
		_, _ = fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s", len(message)+4, message)
		return true
	})
	forbidden := newGitServer(t, func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "no entry for "+fakePassword, http.StatusForbidden)
		return true
	})
	closed.addProject(t, "project")
	require.NoError(t, os.Mkdir(filepath.Join(open.dir, "empty"), 0o755))
	gitIn(t, filepath.Join(open.dir, "empty"), "init", "-q")
	good, wrong := &stage.Auth{Username: "user", Password: fakePassword}, &stage.Auth{Username: "user", Password: "wrong-" + fakePassword}
	for name, c := range map[string]struct {
		clone stage.Clone
		want  string
	}{
		"not found":             {stage.Clone{URL: open.URL + "/none", Auth: good}, "the repository was not found"},
		"no folder":             {stage.Clone{URL: filepath.Join(open.dir, "none")}, "the repository was not found"},
		"empty":                 {stage.Clone{URL: open.URL + "/empty/.git"}, "the repository may be empty"},
		"wrong password":        {stage.Clone{URL: closed.URL + "/project/.git", Auth: wrong}, "authentication failed"},
		"no password":           {stage.Clone{URL: closed.URL + "/project/.git"}, "authentication failed"},
		"forbidden":             {stage.Clone{URL: forbidden.URL + "/project/.git", Auth: good}, "authentication failed"},
		"talking":               {stage.Clone{URL: talking.URL + "/project/.git", Auth: good}, "I know ***"},
		"wrong password in url": {stage.Clone{URL: strings.Replace(closed.URL, "//", "//user:wrong-"+fakePassword+"@", 1) + "/project/.git"}, "authentication failed"},
		"another host":          {stage.Clone{URL: closed.URL + "/project/.git", Auth: &stage.Auth{Address: "example.invalid", Password: fakePassword}}, "credentials are not for 127.0.0.1"},
		"ssh password":          {stage.Clone{URL: "git@example.invalid:x/y", Auth: good}, "only with http and https"},
		"ssh url password":      {stage.Clone{URL: "ssh://git:" + fakePassword + "@example.invalid/x"}, "only with http and https"},
		"line break":            {stage.Clone{URL: closed.URL + "/x", Auth: &stage.Auth{Username: "user\nhost=evil", Password: fakePassword}}, "line break"},
		"option":                {stage.Clone{URL: "--upload-pack=touch /tmp/x"}, "not valid"},
		"command":               {stage.Clone{URL: "ext::sh -c true"}, "runs commands"},
		"scheme":                {stage.Clone{URL: "ftp://example.invalid/" + fakePassword}, "the scheme \"ftp\""},
		"malformed":             {stage.Clone{URL: "https://user:" + fakePassword + "@exa mple/"}, "not valid"},
		"relative":              {stage.Clone{URL: "../x"}, "neither a URL nor an absolute path"},
		"nothing":               {stage.Clone{}, "no url"},
		"short commit":          {stage.Clone{URL: open.dir, Commit: "abc1234"}, "not a full object name"},
		"refspec as branch":     {stage.Clone{URL: open.dir, Branch: "a:b"}, "not a valid name"},
		"option as ref":         {stage.Clone{URL: open.dir, Ref: "--upload-pack=x"}, "not a valid name"},
		"negative depth":        {stage.Clone{URL: open.dir, Depth: -1}, "negative"},
		"folder outside":        {stage.Clone{URL: open.dir, Dir: "../x"}, "not in the workspace"},
		"absolute folder":       {stage.Clone{URL: open.dir, Dir: "/etc"}, "not in the workspace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, err := newRig(t).clone(t.Context(), c.clone)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), fakePassword)
			require.NotContains(t, fmt.Sprintf("%+v", err), fakePassword)
			require.NotContains(t, log, "wrong-"+fakePassword)
		})
	}
}

// A temporary error is retried, a permanent error is not.
func TestCloneRetriesTemporaryErrors(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	s := newGitServer(t, func(w http.ResponseWriter, _ *http.Request) bool {
		if requests.Add(1) <= 2 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	s.addProject(t, "project")
	log := newRig(t).cloned(stage.Clone{URL: s.URL + "/project/.git", Branch: "trunk"})
	require.Contains(t, log, "attempt 3 of 3 follows")

	var finals atomic.Int32
	none := newGitServer(t, func(w http.ResponseWriter, _ *http.Request) bool {
		finals.Add(1)
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	_, err := newRig(t).clone(t.Context(), stage.Clone{URL: none.URL + "/project", Branch: "trunk"})
	require.Error(t, err)
	require.EqualValues(t, 1, finals.Load())
}

// Rule T7: a clone that is stopped leaves no process, and its error has the reason.
func TestCloneEndsWithItsContext(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 10)
	release := make(chan struct{})
	s := newGitServer(t, func(_ http.ResponseWriter, r *http.Request) bool {
		reached <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	})
	defer close(release)
	r := newRig(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	aborted := errors.New("the stage was aborted")
	go func() { <-reached; cancel(aborted) }()
	began := time.Now()
	log, err := r.clone(ctx, stage.Clone{URL: s.URL + "/project/.git"})
	require.ErrorIs(t, err, aborted)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), 20*time.Second, log)
	// The process was recorded before its start, and is gone.
	processes := r.ledger.ofKind("process")
	require.NotEmpty(t, processes)
	for _, env := range environments() {
		require.NotContains(t, env, processes[len(processes)-1].ID)
	}
}

func environments() []string {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var all []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			all = append(all, string(b))
		}
	}
	return all
}

func TestCloneIsNotStartedWithoutARecord(t *testing.T) {
	t.Parallel()
	s := newGitServer(t, nil)
	s.addProject(t, "project")
	r := newRig(t)
	var first string
	r.ledger.before = func(res driver.Resource) {
		if res.Kind == "process" && first == "" {
			first = "record " + string(res.Data)
		}
	}
	r.ledger.refuse = func(res driver.Resource) error {
		if res.Kind == "process" {
			return errRefused
		}
		return nil
	}
	_, err := r.clone(t.Context(), stage.Clone{URL: s.URL + "/project/.git"})
	require.ErrorIs(t, err, errRefused)
	require.NotEmpty(t, first)
	require.NotContains(t, first, `"pid"`)
	_, err = os.Stat(filepath.Join(r.workspace(), ".git"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
