package main

import (
	"encoding/json"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
)

// Rule G1, all parts together: a commit in a repository that a delegate polls starts a run, with the credentials of a
// connector that only the delegate resolves.
func TestACommitStartsARun(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		testbed.Unavailable(t, "git", "there is none")
	}
	const account, secret, password = "acme", "00000000000000000000000000000001", "visibly-fake-password-of-a-test"
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main", "-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, string(text))
	}
	git("init", "-q", "app")
	dir = filepath.Join(dir, "app")
	git("commit", "-q", "--allow-empty", "-m", "first")
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/", Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	states := make(chan string, 100) // that the forge gets, as GitHub's API
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v3/repos/app/statuses/") && r.Header.Get("Authorization") == "Bearer "+password {
			var body struct{ State, Context string }
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
			states <- body.Context + " " + body.State
			w.WriteHeader(http.StatusCreated)
			return
		}
		if _, given, _ := r.BasicAuth(); given != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	defer forge.Close()

	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, m.Close()) }()
	server := httptest.NewServer(m)
	defer server.Close()
	s, err := pipeline.New(t.Context(), pipeline.Config{Manager: m, Database: filepath.Join(t.TempDir(), "pipelines.db")})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()

	c, err := client.New(server.URL, account, secret)
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	t.Setenv("DLITE_SECRET_FORGE", password)
	resolver := secrets.ResolverConfig{Providers: secrets.Providers{"env": secrets.Env("DLITE_SECRET_")}}
	options, closeWatched := openWatched(c, resolver)
	defer closeWatched()
	p := poller.New(c, router.New(connectorRoutes(c), router.WithMiddleware(routersecrets.Resolve(resolver))), append(options, poller.WithName("d"))...)
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	polled := make(chan error, 1)
	go func() { polled <- p.Poll(t.Context(), 4, info.ID, 100*time.Millisecond) }()
	defer func() {
		assert.NoError(t, p.Shutdown(t.Context()))
		assert.NoError(t, <-polled)
	}()

	_, err = m.SetConnector(t.Context(), account, api.Connector{ID: "forge", Kind: "git", Address: forge.URL, Secrets: map[string]string{"token": "env://FORGE"}})
	require.NoError(t, err)
	_, err = m.SetConnector(t.Context(), account, api.Connector{ID: "statuses", Kind: "github", Address: forge.URL, Secrets: map[string]string{"token": "env://FORGE"}})
	require.NoError(t, err)
	_, err = s.SetPipeline(t.Context(), account, api.Pipeline{ID: "web", YAML: `pipeline: {identifier: web, name: web, stages: [{stage: {identifier: b, name: b, type: CI, when: {pipelineStatus: Success, condition: "false"},
  spec: {platform: {os: Linux, arch: Amd64}, runtime: {type: Docker, spec: {}}, execution: {steps: [{step: {identifier: a, name: a, type: Run, spec: {command: "true"}}}]}}}}]}`})
	require.NoError(t, err)
	_, err = s.SetTrigger(t.Context(), account, api.Trigger{ID: "commits", Kind: "git", Pipeline: "web", CommitStatus: &api.CommitStatus{Connector: "statuses"}, Source: &api.TriggerSource{Connector: "forge", Repository: "app", IntervalSeconds: 10}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		task, err := m.Perpetual(account, "trigger-commits")
		return err == nil && task.Runs > 0 && len(task.State) > 0
	}, time.Minute, 20*time.Millisecond, "the first poll")
	task, err := m.Perpetual(account, "trigger-commits")
	require.NoError(t, err)
	assert.Empty(t, task.LastError)
	assert.NotContains(t, string(task.Config)+string(task.State), password)

	git("commit", "-q", "--allow-empty", "-m", "second")
	require.NoError(t, m.RunPerpetual(t.Context(), account, "trigger-commits"))
	var runs []api.Run
	require.Eventually(t, func() bool {
		page, err := s.Runs(t.Context(), account, api.RunFilter{})
		runs = page.Runs
		return err == nil && len(runs) > 0
	}, time.Minute, 20*time.Millisecond)
	assert.Equal(t, "main", runs[0].Branch)
	assert.Equal(t, "commits", runs[0].Labels["trigger"])
	assert.Equal(t, "dlite/web success", <-states, "the newest state is reported to the forge")
}
