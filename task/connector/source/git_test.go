package source

import (
	"context"
	"fmt"
	"github.com/delegate-io/dlite/secrets"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/source"
)

func (s *gitServer) config(name string) source.GitConfig {
	return source.GitConfig{URL: s.URL + "/" + name, Auth: &source.Auth{Password: fakePassword}, Branches: []string{"main", "release/*"}, Tags: []string{"v*"}}
}

// Rule G1: the first poll notes what there is, and each change is one event after it. A poll is one request.
func TestEachNewCommitIsOneEvent(t *testing.T) {
	t.Parallel()
	server := newGitServer(t)
	dir := repo(t, filepath.Join(server.dir, "app"))
	one := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "branch", "other")
	git(t, dir, "tag", "v1")
	w := watch(t, server.sources(t), source.TypeGit, server.config("app"))
	assert.Empty(t, poll[source.GitEvent](w), "the first poll notes only")
	assert.EqualValues(t, 1, server.requests.Load(), "a poll is one request")
	assert.Empty(t, poll[source.GitEvent](w))
	assert.EqualValues(t, 2, server.requests.Load())

	two := commit(t, dir, "second")
	git(t, dir, "branch", "release/1")
	git(t, dir, "branch", "-f", "other")
	git(t, dir, "tag", "-a", "-m", "annotated", "v2")
	events := poll[source.GitEvent](w)
	require.Len(t, events, 3)
	ids := map[string]bool{}
	for i := range events {
		ids[events[i].ID] = true
		events[i].ID = ""
	}
	assert.Len(t, ids, 3, "the ids are different")
	url := server.URL + "/app"
	assert.Equal(t, []source.GitEvent{
		{Repository: url, Ref: "refs/heads/main", Old: one, New: two},
		{Repository: url, Ref: "refs/heads/release/1", New: two},
		{Repository: url, Ref: "refs/tags/v2", New: two}, // the commit, not the tag's object
	}, events)
	assert.Empty(t, poll[source.GitEvent](w))

	git(t, dir, "branch", "-D", "release/1")
	assert.Empty(t, poll[source.GitEvent](w), "a removal is no event")
	git(t, dir, "branch", "release/1")
	assert.Len(t, poll[source.GitEvent](w), 1, "but its return is one")
}

// A branch that only the changed patterns select is old: a change of a trigger must not start a run for each branch.
func TestOtherPatternsAreNoEvents(t *testing.T) {
	t.Parallel()
	server := newGitServer(t)
	dir := repo(t, filepath.Join(server.dir, "app"))
	git(t, dir, "branch", "feature/a")
	w := watch(t, server.sources(t), source.TypeGit, server.config("app"))
	poll[source.GitEvent](w)
	two := commit(t, dir, "second")
	wider := server.config("app")
	wider.Branches = []string{"**"}
	w.with(wider)
	events := poll[source.GitEvent](w)
	require.Len(t, events, 1, "a commit on a branch that both select is an event")
	assert.Equal(t, two, events[0].New)
	git(t, dir, "branch", "feature/b")
	assert.Len(t, poll[source.GitEvent](w), 1)
}

// Many changes at once are split over runs: none is lost, none comes twice.
func TestTooManyChangesContinueInTheNextRun(t *testing.T) {
	t.Parallel()
	server := newGitServer(t)
	dir := repo(t, filepath.Join(server.dir, "app"))
	w := watch(t, server.sources(t), source.TypeGit, server.config("app"))
	poll[source.GitEvent](w)
	var packed strings.Builder
	head := git(t, dir, "rev-parse", "HEAD")
	const all = 2*mostEvents + 20
	for i := range all {
		fmt.Fprintf(&packed, "create refs/tags/v%d %s\n", i, head)
	}
	update(t, dir, packed.String())
	seen, ids := map[string]int{}, map[string]bool{}
	for range 4 {
		events := poll[source.GitEvent](w)
		assert.LessOrEqual(t, len(events), mostEvents)
		for _, e := range events {
			seen[e.Ref]++
			ids[e.ID] = true
		}
	}
	assert.Len(t, seen, all)
	assert.Len(t, ids, all)
	for ref, n := range seen {
		assert.Equal(t, 1, n, ref)
	}
}

// A server that knows only the first version of the protocol, a repository with SHA-256 ids, and an empty one.
func TestOtherServersAndRepositories(t *testing.T) {
	t.Parallel()
	server := newGitServer(t)
	s := server.sources(t)
	change := func(name, dir string, w *watched) {
		poll[source.GitEvent](w)
		two := commit(t, dir, "second")
		git(t, dir, "tag", "-a", "-m", "annotated", "v2")
		events := poll[source.GitEvent](w)
		require.Len(t, events, 2, name)
		assert.Equal(t, two, events[0].New, name)
		assert.Equal(t, two, events[1].New, name)
	}
	t.Run("sha256", func(t *testing.T) {
		dir := repo(t, filepath.Join(server.dir, "long"), "--object-format=sha256")
		change("sha256", dir, watch(t, s, source.TypeGit, server.config("long")))
	})
	t.Run("version 1", func(t *testing.T) {
		dir := repo(t, filepath.Join(server.dir, "old"))
		server.before(func(w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Git-Protocol")
			return false
		})
		change("version 1", dir, watch(t, s, source.TypeGit, server.config("old")))
		server.before(nil)
	})
	t.Run("empty", func(t *testing.T) {
		git(t, server.dir, "init", "-q", "--bare", "empty.git")
		w := watch(t, s, source.TypeGit, server.config("empty.git"))
		assert.Empty(t, poll[source.GitEvent](w))
		assert.Empty(t, poll[source.GitEvent](w))
	})
	t.Run("renamed", func(t *testing.T) {
		dir := repo(t, filepath.Join(server.dir, "new"))
		server.before(func(w http.ResponseWriter, r *http.Request) bool {
			rest, old := strings.CutPrefix(r.URL.Path, "/before/")
			if old {
				http.Redirect(w, r, "/new/"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
			}
			return old
		})
		defer server.before(nil)
		change("renamed", dir, watch(t, s, source.TypeGit, server.config("before")))
	})
}

// Each refusal has an error that says what to do, and none has the password.
func TestRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	server := newGitServer(t)
	repo(t, filepath.Join(server.dir, "app"))
	s := server.sources(t)
	status := func(code int, header ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return true
		}
	}
	for name, c := range map[string]struct {
		url    string
		first  func(http.ResponseWriter, *http.Request) bool
		auth   *source.Auth
		expect string
	}{
		"password":  {auth: &source.Auth{Password: "visibly-fake-and-wrong"}, expect: "check the secrets of the connector"},
		"forbidden": {first: status(403), expect: "permission to read"},
		"missing":   {url: server.URL + "/nothing", expect: "no such repository"},
		"limited":   {first: status(429, "Retry-After", "60"), expect: "pause of 1m0s"},
		"broken":    {first: status(502), expect: "status 502"},
		"elsewhere": {first: status(302, "Location", "http://other.invalid/x"), expect: "redirects to other.invalid"},
		"page":      {first: status(200, "Content-Type", "text/html"), expect: "not the address of a Git repository"},
		"scheme":    {url: "file:///etc", expect: "use https, http or ssh"},
		"user":      {url: "https://a:visibly-fake-and-wrong@git.invalid/x", expect: "put them into secrets"},
	} {
		cfg := server.config("app")
		if c.url != "" {
			cfg.URL = c.url
		}
		if c.auth != nil {
			cfg.Auth = c.auth
		}
		server.before(c.first)
		w := watch(t, s, source.TypeGit, cfg)
		_, err := w.try(t.Context())
		require.ErrorContains(t, err, c.expect, name)
		assert.NotContains(t, err.Error(), "visibly-fake", name)
	}
}

// An answer that is cut or damaged is an error, never a shorter list: a listing without its end would report each
// missing branch as new afterwards.
func FuzzListing(f *testing.F) {
	id := strings.Repeat("a", 40)
	whole := packet(id+" refs/heads/main\n") + packet(id+" refs/tags/v1 peeled:"+id+"\n") + flushPacket
	f.Add(whole)
	f.Add(packet("# service=git-upload-pack\n") + flushPacket + packet("version 2\n") + packet("object-format=sha256\n") + flushPacket)
	f.Add(packet(id+" refs/heads/main\x00caps\n") + flushPacket)
	keep := func(string) bool { return true }
	for i := range whole {
		if refs, err := readRefs(newPackets(strings.NewReader(whole[:i])), keep); err == nil {
			f.Errorf("%q: %v", whole[:i], refs)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		refs, err := readRefs(newPackets(strings.NewReader(text)), keep)
		a, err2 := readAdvertisement(newPackets(strings.NewReader(text)), keep)
		if err2 == nil && a.refs == nil || err == nil && refs == nil {
			t.Error("no list")
		}
		for _, id := range refs {
			if !objectID.MatchString(id) {
				t.Errorf("%q", id)
			}
		}
	})
}

// One delegate polls many repositories: each poll is one request, and the connections are shared. DLITE_TEST_SOURCES
// is their number.
func TestManySourcesShareConnections(t *testing.T) {
	count := 100
	if n, err := strconv.Atoi(os.Getenv("DLITE_TEST_SOURCES")); err == nil {
		count = n
	}
	server := newGitServer(t)
	dir := repo(t, filepath.Join(server.dir, "app"))
	s := server.sources(t)
	all := make([]*watched, count)
	for i := range all {
		name := fmt.Sprintf("app%d", i)
		require.NoError(t, os.Symlink(dir, filepath.Join(server.dir, name)))
		all[i] = watch(t, s, source.TypeGit, server.config(name))
	}
	pollAll := func() (events int64) {
		var sum atomic.Int64
		var polls sync.WaitGroup
		for _, w := range all {
			polls.Go(func() { // at most Config.Parallel at a time
				found, err := w.try(t.Context())
				assert.NoError(t, err)
				sum.Add(int64(len(found)))
			})
		}
		polls.Wait()
		return sum.Load()
	}
	assert.Zero(t, pollAll())
	before := cpuTime()
	assert.Zero(t, pollAll())
	used := cpuTime() - before
	commit(t, dir, "second")
	assert.EqualValues(t, count, pollAll())
	assert.EqualValues(t, 3*count, server.requests.Load(), "one request for each poll")
	assert.LessOrEqual(t, server.conns.Load(), int64(16), "at most one for each poll at a time")
	t.Logf("%d sources: %d requests over %d connections in 3 rounds; %v of processor time in a round, with the server's part in this process",
		count, server.requests.Load(), server.conns.Load(), used)
}

// Rule S1: the delegate resolves the secrets of a source, and fetches them again after a refusal. Rule S3: no error
// shows one.
func TestSecretsOfSourcesAreResolved(t *testing.T) {
	t.Parallel()
	server := newGitServer(t)
	repo(t, filepath.Join(server.dir, "app"))
	vault := &fakeProvider{value: "visibly-fake-and-old"}
	s := New(Config{Transport: server.Client().Transport, Secrets: secrets.ResolverConfig{Providers: secrets.Providers{"fake": vault}}})
	t.Cleanup(s.Close)
	cfg := server.config("app")
	cfg.Auth.Password = "${{secrets.fake://git}}"
	w := watch(t, s, source.TypeGit, cfg)
	_, err := w.try(t.Context())
	require.ErrorContains(t, err, "check the secrets")
	vault.value = fakePassword
	for range 3 {
		assert.Empty(t, poll[source.GitEvent](w))
	}
	assert.Equal(t, 2, vault.calls, "a value is used again")
	assert.NotContains(t, string(w.state), fakePassword)
	cfg.URL = "https://" + fakePassword + ".invalid:0/x"
	w.with(cfg)
	_, err = w.try(t.Context())
	require.Error(t, err)
	assert.NotContains(t, err.Error(), fakePassword)
}

type fakeProvider struct {
	value string
	calls int
}

func (p *fakeProvider) Fetch(context.Context, *url.URL) (string, error) {
	p.calls++
	return p.value, nil
}
