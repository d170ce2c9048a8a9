//go:build unix

package local_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"

	"github.com/delegate-io/dlite/internal/testbed"
)

// addParent creates a repository with a submodule at each of the URLs.
func (s *gitServer) addParent(t *testing.T, name string, submodules map[string]string) {
	t.Helper()
	dir := filepath.Join(s.dir, name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	gitIn(t, dir, "init", "-q")
	for path, url := range submodules {
		// From a directory: the server requires a password.
		gitIn(t, dir, "submodule", "--quiet", "add", filepath.Join(s.dir, "project"), path)
		gitIn(t, dir, "config", "-f", ".gitmodules", "submodule."+path+".url", url)
	}
	commit(t, dir, "file", "parent")
}

// Rule D2: a clone includes submodules, also nested ones, with the credentials for the same host.
func TestInitClonesSubmodules(t *testing.T) {
	t.Parallel()
	s := newGitServer(t, locked)
	s.addProject(t, "project")
	s.addParent(t, "middle", map[string]string{"inner": "../../project/.git"})
	s.addParent(t, "top", map[string]string{"a": s.URL + "/project/.git", "b": "../../middle/.git"})
	top := filepath.Join(s.dir, "top")
	gitIn(t, filepath.Join(top, "b"), "fetch", "-q", filepath.Join(s.dir, "middle"))
	gitIn(t, filepath.Join(top, "b"), "checkout", "-q", "FETCH_HEAD")
	commit(t, top, "file", "with middle")

	for name, depth := range map[string]int{"whole": 0, "shallow": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := stage.Clone{URL: s.URL + "/top/.git", Submodules: true, Depth: depth, Auth: &stage.Auth{Username: "u", Password: fakePassword}}
			r.cloned(c)
			for _, file := range []string{"file", "a/file", "b/file", "b/inner/file"} {
				require.FileExists(t, filepath.Join(r.workspace(), file))
			}
			count := gitIn(t, filepath.Join(r.workspace(), "a"), "rev-list", "--count", "HEAD")
			require.Equal(t, map[int]string{0: "3", 1: "1"}[depth], count)
			requireNowhere(t, r.work, fakePassword)
		})
	}
	r := newRig(t)
	r.cloned(stage.Clone{URL: s.URL + "/top/.git", Auth: &stage.Auth{Username: "u", Password: fakePassword}})
	require.NoFileExists(t, filepath.Join(r.workspace(), "a/file"))
}

// A submodule gets no credentials of another host, and no files of this machine.
func TestSubmodulesGetNeitherCredentialsNorFilesOfOthers(t *testing.T) {
	t.Parallel()
	var reported atomic.Bool
	other := newGitServer(t, func(w http.ResponseWriter, r *http.Request) bool {
		if _, _, ok := r.BasicAuth(); ok {
			reported.Store(true)
		}
		return locked(w, r)
	})
	s := newGitServer(t, locked)
	s.addProject(t, "project")
	s.addParent(t, "other", map[string]string{"a": other.URL + "/project/.git"})
	s.addParent(t, "files", map[string]string{"a": filepath.Join(s.dir, "project")})
	s.addParent(t, "command", map[string]string{"a": "ext::sh -c true"})
	auth := &stage.Auth{Username: "u", Password: fakePassword}

	_, err := newRig(t).clone(t.Context(), stage.Clone{URL: s.URL + "/other/.git", Submodules: true, Auth: auth})
	require.ErrorContains(t, err, "authentication failed")
	require.False(t, reported.Load())

	for _, name := range []string{"files", "command"} {
		_, err = newRig(t).clone(t.Context(), stage.Clone{URL: s.URL + "/" + name + "/.git", Submodules: true, Auth: auth})
		require.ErrorContains(t, err, "a transport that is not allowed")
	}
	_, err = newRig(t).clone(t.Context(), stage.Clone{URL: filepath.Join(s.dir, "files"), Submodules: true})
	require.ErrorContains(t, err, "a transport that is not allowed")
}

// withPath puts programs before those of the machine in the delegate's PATH.
func withPath(t *testing.T, programs map[string]string, rest string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755)) //nolint:gosec // a program
	}
	t.Setenv("PATH", dir+rest)
}

func TestCloneNamesTheMissingProgram(t *testing.T) {
	s := newGitServer(t, nil)
	s.addProject(t, "project")
	clone := stage.Clone{URL: s.URL + "/project/.git"}
	if exec.CommandContext(t.Context(), "git", "lfs", "version").Run() != nil {
		lfs := clone
		lfs.LFS = true
		_, err := newRig(t).clone(t.Context(), lfs)
		require.ErrorContains(t, err, "git-lfs is not in the PATH")
	} else {
		t.Log("NOT TESTED: git-lfs is installed")
	}
	withPath(t, nil, "")
	_, err := newRig(t).clone(t.Context(), clone)
	require.ErrorContains(t, err, "git is not in the PATH")
}

// git-lfs is set up in the repository alone, and gets the credentials as git does.
func TestCloneFetchesLFSObjects(t *testing.T) {
	s := newGitServer(t, locked)
	s.addProject(t, "project")
	log := filepath.Join(t.TempDir(), "calls")
	withPath(t, map[string]string{"git-lfs": `echo "$@" >> ` + log + `
		if test "$1" = pull; then printf 'url=` + s.URL + `/x\n\n' | git credential fill >> ` + log + `; fi`}, ":"+os.Getenv("PATH"))
	newRig(t).cloned(stage.Clone{URL: s.URL + "/project/.git", LFS: true, Auth: &stage.Auth{Username: "u", Password: fakePassword}})
	calls, err := os.ReadFile(log)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(calls), "version\ninstall --local --skip-repo\npull origin\n"), string(calls))
	require.Contains(t, string(calls), "password="+fakePassword)
}

// Git ignores the configuration of the machine and the user, and the delegate's variables.
func TestCloneIgnoresTheMachinesConfiguration(t *testing.T) {
	s := newGitServer(t, locked)
	s.addProject(t, "project")
	home, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	hooks := filepath.Join(home, "hooks")
	require.NoError(t, os.MkdirAll(filepath.Join(home, "template", "hooks"), 0o755))
	require.NoError(t, os.MkdirAll(hooks, 0o755))
	for _, dir := range []string{hooks, filepath.Join(home, "template", "hooks")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "post-checkout"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755)) //nolint:gosec // a program
	}
	config := filepath.Join(home, ".gitconfig")
	require.NoError(t, os.WriteFile(config, []byte(
		"[core]\n hooksPath = "+hooks+"\n[init]\n templateDir = "+home+"/template\n"+
			"[url \"http://127.0.0.1:1/\"]\n insteadOf = "+s.URL+"/\n"+
			"[credential]\n helper = \"!touch "+ran+"; echo password=x\"\n[transfer]\n fsckObjects = nonsense\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".netrc"), []byte("machine 127.0.0.1 login u password "+fakePassword+"\n"), 0o600))
	for k, v := range map[string]string{
		"HOME": home, "GIT_CONFIG_GLOBAL": config, "GIT_CONFIG_SYSTEM": config, "GIT_TEMPLATE_DIR": filepath.Join(home, "template"),
		"GIT_DIR": home, "GIT_ASKPASS": "touch " + ran, "SSH_ASKPASS": "touch " + ran,
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": hooks,
	} {
		t.Setenv(k, v)
	}
	r := newRig(t)
	_, err := r.clone(t.Context(), stage.Clone{URL: s.URL + "/project/.git", Branch: "trunk"})
	require.ErrorContains(t, err, "authentication failed") // .netrc is not used
	r = newRig(t)
	r.cloned(stage.Clone{URL: s.URL + "/project/.git", Auth: &stage.Auth{Username: "u", Password: fakePassword}})
	require.FileExists(t, filepath.Join(r.workspace(), "file"))
	require.NoFileExists(t, ran)
	require.NoDirExists(t, filepath.Join(r.workspace(), ".git", "hooks"))
}

// A path that the manager names is cloned, whichever user owns it.
func TestClonesAPathOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "only root can give files away")
	}
	s := newGitServer(t, nil)
	p := s.addProject(t, "project")
	dir := filepath.Join(s.dir, "project")
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, 12345, 12345)
	}))
	for _, url := range []string{dir, "file://" + dir, dir + "/.git"} {
		r := newRig(t)
		r.cloned(stage.Clone{URL: url})
		require.Equal(t, p.three, gitIn(t, r.workspace(), "rev-parse", "HEAD"))
	}
}

// The files of an init replace those of the repository. A second init leaves the working tree
// unchanged.
func TestFilesOfAnInitReplaceThoseOfTheClone(t *testing.T) {
	t.Parallel()
	s := newGitServer(t, nil)
	s.addProject(t, "project")
	r := newRig(t)
	r.env.Files = []*stage.File{{Path: "file", Data: "mine"}}
	r.cloned(stage.Clone{URL: s.URL + "/project/.git"})
	b, err := os.ReadFile(filepath.Join(r.workspace(), "file"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))

	s.Close()
	r.env.Files = nil
	r.init()
	_, out := r.run(sh("step", "git status --short; git log --oneline | wc -l"))
	require.Equal(t, " M file\n3\n", out)
}

// The real git-lfs, if the machine has it: with LFS the clone contains the objects, without it the
// pointers.
func TestCloneWithTheRealLFS(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "git", "lfs", "version").Run() != nil {
		testbed.Unavailable(t, "git-lfs", "it is not installed")
	}
	s := newGitServer(t, nil)
	dir := filepath.Join(s.dir, "large")
	require.NoError(t, os.Mkdir(dir, 0o755))
	gitIn(t, dir, "init", "-q")
	gitIn(t, dir, "lfs", "install", "--local")
	gitIn(t, dir, "lfs", "track", "*.bin")
	commit(t, dir, "a.bin", "large content")
	for lfs, want := range map[bool]string{true: "large content", false: "version https://git-lfs.github.com/spec/v1"} {
		r := newRig(t)
		r.cloned(stage.Clone{URL: dir, LFS: lfs})
		b, err := os.ReadFile(filepath.Join(r.workspace(), "a.bin"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(b), want), string(b))
		require.Empty(t, gitIn(t, r.workspace(), "status", "--porcelain"))
	}
}
