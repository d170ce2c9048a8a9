package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/internal/testbed"
)

// realRegistry is a docker-registry on loopback.
type realRegistry struct {
	t    *testing.T
	host string
}

// newRegistry starts a registry with settings, which requires fakePassword if they say so.
func newRegistry(t *testing.T, settings string) *realRegistry {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		testbed.Unavailable(t, "registry", "there is no docker-registry")
	}
	dir := t.TempDir()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host := l.Addr().String()
	require.NoError(t, l.Close())
	config := filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n%s", dir, host, settings)), 0o600))
	cmd := exec.Command(program, "serve", config) //nolint:noctx // it is stopped below
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r := &realRegistry{t, host}
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	return r
}

func (r *realRegistry) do(method, path, kind string, body []byte, want int) http.Header {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, path, bytes.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", kind)
	req.SetBasicAuth("reader", fakePassword)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.Equal(r.t, want, resp.StatusCode, "%s %s: %s", method, path, text)
	return resp.Header
}

// push writes an image with some content under a tag, and returns its digest.
func (r *realRegistry) push(name, tag, content string) string {
	r.t.Helper()
	base := "http://" + r.host + "/v2/" + name
	blob := func(data []byte) string {
		sum := sha256.Sum256(data)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		upload := r.do(http.MethodPost, base+"/blobs/uploads/", "", nil, http.StatusAccepted).Get("Location")
		r.do(http.MethodPut, upload+"&digest="+digest, "application/octet-stream", data, http.StatusCreated)
		return digest
	}
	config := []byte(`{"architecture":"amd64","os":"linux","comment":"` + content + `"}`)
	const kind = "application/vnd.docker.distribution.manifest.v2+json"
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":%d,"digest":%q},"layers":[]}`,
		kind, len(config), blob(config))
	return r.do(http.MethodPut, base+"/manifests/"+tag, kind, manifest, http.StatusCreated).Get("Docker-Content-Digest")
}

// answers counts the statuses of answers.
type answers struct {
	next     http.RoundTripper
	statuses chan int
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err == nil {
		a.statuses <- resp.StatusCode
	}
	return resp, err
}

// Rule G1, with a real registry: a new tag is one event, and so is another digest of a watched tag. A digest that has
// not changed is not sent again.
func TestNewTagsAndDigestsAreEvents(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, "")
	first := r.push("team/app", "v1", "one")
	r.push("team/app", "latest", "one")
	seen := &answers{http.DefaultTransport, make(chan int, 100)}
	s := New(Config{Transport: seen})
	t.Cleanup(s.Close)
	repository := r.host + "/team/app"
	w := watch(t, s, source.TypeRegistry, source.RegistryConfig{Repository: repository, Insecure: true, Tags: []string{"v*", "!*-rc"}, Digests: []string{"latest"}})
	assert.Empty(t, poll[source.RegistryEvent](w))
	for len(seen.statuses) > 0 {
		<-seen.statuses
	}
	assert.Empty(t, poll[source.RegistryEvent](w))
	assert.Equal(t, http.StatusOK, <-seen.statuses, "the list, for which this registry has no ETag")
	assert.Equal(t, http.StatusNotModified, <-seen.statuses, "the digest")
	assert.Empty(t, seen.statuses)

	second := r.push("team/app", "v2", "two")
	r.push("team/app", "v3-rc", "two")
	r.push("team/app", "latest", "two")
	events := poll[source.RegistryEvent](w)
	require.Len(t, events, 2)
	assert.NotEqual(t, events[0].ID, events[1].ID)
	events[0].ID, events[1].ID = "", ""
	assert.Equal(t, []source.RegistryEvent{{Repository: repository, Tag: "v2", Digest: second}, {Repository: repository, Tag: "latest", Digest: second, Old: first}}, events)
	assert.Empty(t, poll[source.RegistryEvent](w))

	for i := range mostEvents + 5 {
		r.push("team/app", fmt.Sprintf("v9.%d", i), "two")
	}
	assert.Len(t, poll[source.RegistryEvent](w), mostEvents)
	assert.Len(t, poll[source.RegistryEvent](w), 5)
	assert.Empty(t, poll[source.RegistryEvent](w))
}

// A registry with passwords, in both schemes. The tokens of the second are asked for once, and again when they end.
func TestRegistriesWithPasswords(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "htpasswd")
	// reader with fakePassword, made by htpasswd -B
	require.NoError(t, os.WriteFile(file, []byte(htpasswd(t)), 0o600))
	r := newRegistry(t, "auth: {htpasswd: {realm: test, path: "+file+"}}\n")
	r.push("team/app", "v1", "one")
	s := New(Config{})
	t.Cleanup(s.Close)
	cfg := source.RegistryConfig{Repository: r.host + "/team/app", Auth: &source.Auth{Username: "reader", Password: fakePassword}, Insecure: true, Tags: []string{"*"}}
	w := watch(t, s, source.TypeRegistry, cfg)
	poll[source.RegistryEvent](w)
	r.push("team/app", "v2", "two")
	assert.Len(t, poll[source.RegistryEvent](w), 1)

	cfg.Auth = &source.Auth{Username: "reader", Password: "visibly-fake-and-wrong"}
	wrong := watch(t, s, source.TypeRegistry, cfg)
	_, err := wrong.try(t.Context())
	require.ErrorContains(t, err, "check the secrets of the connector")
	cfg.Auth.Password, cfg.Repository = fakePassword, r.host+"/team/missing"
	wrong.with(cfg)
	_, err = wrong.try(t.Context())
	require.ErrorContains(t, err, "has no repository team/missing")
	cfg.Repository = "not a name"
	wrong.with(cfg)
	_, err = wrong.try(t.Context())
	require.ErrorContains(t, err, "not the name of an image")
}

// Lists of several pages are read to the end, and a page of another server is not read.
func TestPagesOfTags(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"": `{"tags":["v1","v2"]}`, "v2": `{"tags":["v3","bad tag"]}`}
	link := `</v2/app/tags/list?last=v2&n=2>; rel="next"`
	etag := ""
	server := newStandIn(t, func(w http.ResponseWriter, r *http.Request) {
		if etag != "" && r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", etag)
		last := r.URL.Query().Get("last")
		if strings.HasSuffix(r.URL.Path, "/list") && last == "" && link != "" {
			w.Header().Set("Link", link)
		}
		w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("a", 64))
		_, _ = io.WriteString(w, pages[last])
	})
	s := New(Config{})
	t.Cleanup(s.Close)
	w := watch(t, s, source.TypeRegistry, source.RegistryConfig{Repository: server + "/app", Insecure: true, Tags: []string{"*"}})
	poll[source.RegistryEvent](w)
	pages["v2"] = `{"tags":["v3","v4"]}`
	events := poll[source.RegistryEvent](w)
	require.Len(t, events, 1)
	assert.Equal(t, "v4", events[0].Tag)

	link = `<http://other.invalid/v2/app/tags/list?last=v2>; rel="next"`
	_, err := w.try(t.Context())
	require.ErrorContains(t, err, "not valid")
	link, etag = "", `"one"`
	poll[source.RegistryEvent](w)
	before := s.requests.Load()
	assert.Empty(t, poll[source.RegistryEvent](w))
	assert.EqualValues(t, 1, s.requests.Load()-before, "the list has not changed")
	other := watch(t, s, source.TypeRegistry, source.RegistryConfig{Repository: server + "/app", Insecure: true, Tags: []string{"v1"}})
	other.state = w.state
	assert.Empty(t, poll[source.RegistryEvent](other))
	other.with(source.RegistryConfig{Repository: server + "/app", Insecure: true, Tags: []string{"*"}})
	assert.Empty(t, poll[source.RegistryEvent](other), "other patterns are no events, though the list is the same")
}
