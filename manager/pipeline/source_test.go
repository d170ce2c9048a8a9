package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
)

// sourceManager is a manager whose perpetual tasks a test runs itself.
type sourceManager struct {
	*manager.Manager

	mu      sync.Mutex
	tasks   map[string]api.PerpetualTask
	sets    int
	failing error
	take    map[string]func(context.Context, []manager.PerpetualEvent) error // by type
	ready   chan struct{}                                                    // gets a token for each consumer
}

func newSourceManager(t *testing.T, slots int) *sourceManager {
	t.Helper()
	return &sourceManager{Manager: newManager(t, slots), tasks: map[string]api.PerpetualTask{}, take: map[string]func(context.Context, []manager.PerpetualEvent) error{}, ready: make(chan struct{}, 100)}
}

func (m *sourceManager) SetPerpetual(_ context.Context, account string, task api.PerpetualTask) (api.PerpetualTask, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets++
	if m.failing != nil {
		return task, m.failing
	}
	m.tasks[account+"/"+task.ID] = task
	return task, nil
}

func (m *sourceManager) DeletePerpetual(_ context.Context, account, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.tasks[account+"/"+id]; !ok {
		return manager.ErrNotFound
	}
	delete(m.tasks, account+"/"+id)
	return nil
}

func (m *sourceManager) ConsumePerpetual(ctx context.Context, taskType string, f func(context.Context, []manager.PerpetualEvent) error) error {
	m.mu.Lock()
	m.take[taskType] = f
	m.mu.Unlock()
	m.ready <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (m *sourceManager) has() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.tasks))
}

func (m *sourceManager) task(id string) api.PerpetualTask {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tasks[account+"/trigger-"+id]
}

// consumers waits for the consumers of both types of a service.
func (m *sourceManager) consumers() {
	<-m.ready
	<-m.ready
}

// deliver gives events to the service, as a manager does.
func (m *sourceManager) deliver(t *testing.T, taskType, id string, events ...any) {
	t.Helper()
	var list []manager.PerpetualEvent
	for i, e := range events {
		data, err := json.Marshal(e)
		require.NoError(t, err)
		list = append(list, manager.PerpetualEvent{ID: uint64(i), Account: account, Task: "trigger-" + id, Data: data})
	}
	m.mu.Lock()
	f := m.take[taskType]
	m.mu.Unlock()
	require.NoError(t, f(t.Context(), list))
}

func gitTrigger(id string) api.Trigger {
	return api.Trigger{ID: id, Kind: "git", Pipeline: "web", Branches: []string{"main", "release/*"}, Source: &api.TriggerSource{Connector: "forge", Repository: "team/app.git", IntervalSeconds: 30}}
}

func withForge(c *pipeline.Config) {
	c.Settings.Connectors = map[string]steps.Connector{
		"forge": {Kind: "git", URL: "https://git.example.invalid", Username: "bot", PasswordSecret: "forge"},
		"hub":   {Kind: "registry", URL: "https://registry.example.invalid:5000/v2", Username: "bot", PasswordSecret: "hub"},
	}
	c.Settings.SecretURL = "fake://{id}"
}

// labelled returns the runs of a trigger, the oldest first.
func labelled(t *testing.T, s *pipeline.Service, id string) []api.Run {
	t.Helper()
	page, err := s.Runs(t.Context(), account, api.RunFilter{Labels: map[string]string{"trigger": id}, Limit: 50})
	require.NoError(t, err)
	slices.Reverse(page.Runs)
	return page.Runs
}

// A trigger makes its perpetual task, and its removal removes it. Secrets are references.
func TestATriggerHasAPerpetualTask(t *testing.T) {
	t.Parallel()
	m := newSourceManager(t, 1)
	s := newService(t, m, withForge)
	store(t, s, "web", skipped(), nil)
	setTrigger(t, s, gitTrigger("pushes"))
	image := api.Trigger{ID: "images", Kind: "registry", Pipeline: "web", Tags: []string{"v*"}, Source: &api.TriggerSource{Connector: "hub", Repository: "registry.example.invalid:5000/team/app", Digests: []string{"latest"}, Selectors: []string{"linux"}}}
	setTrigger(t, s, image)
	require.Eventually(t, func() bool { return len(m.has()) == 2 }, time.Minute, 10*time.Millisecond)
	task := m.task("pushes")
	assert.Equal(t, "source/git", task.Type)
	assert.EqualValues(t, 30_000, task.IntervalMS)
	assert.JSONEq(t, `{"url":"https://git.example.invalid/team/app.git","auth":{"username":"bot","password":"${{secrets.fake://forge}}"},"branches":["main","release/*"],"tags":["**"]}`, string(task.Config))
	task = m.task("images")
	assert.Equal(t, "source/registry", task.Type)
	assert.Equal(t, []string{"linux"}, task.Selectors)
	assert.JSONEq(t, `{"repository":"registry.example.invalid:5000/team/app","auth":{"username":"bot","password":"${{secrets.fake://hub}}"},"tags":["v*"],"digests":["latest"]}`, string(task.Config))

	changed := gitTrigger("pushes")
	changed.Events = []api.TriggerEvent{{Type: "push"}}
	setTrigger(t, s, changed)
	require.Eventually(t, func() bool { return !strings.Contains(string(m.task("pushes").Config), "tags") }, time.Minute, 10*time.Millisecond)
	image.Disabled = true
	setTrigger(t, s, image)
	require.Eventually(t, func() bool { return len(m.has()) == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.DeleteTrigger(t.Context(), account, "pushes"))
	require.Eventually(t, func() bool { return len(m.has()) == 0 }, time.Minute, 10*time.Millisecond)

	_, err := m.SetConnector(t.Context(), account, api.Connector{ID: "forge", Kind: "github", Address: "https://git.example.invalid", Secrets: map[string]string{"token": "fake://of-the-manager"}})
	require.NoError(t, err)
	setTrigger(t, s, gitTrigger("pushes"))
	require.Eventually(t, func() bool { return len(m.has()) == 1 }, time.Minute, 10*time.Millisecond)
	assert.Contains(t, string(m.task("pushes").Config), `"password":"${{secrets.fake://of-the-manager}}"`, "connectors of the manager have precedence")

	for expect, change := range map[string]func(*api.Trigger){
		"source.repository is missing": func(c *api.Trigger) { c.Source.Repository = "" },
		"interval_seconds is 5":        func(c *api.Trigger) { c.Source.IntervalSeconds = 5 },
		`names the connector "none"`:   func(c *api.Trigger) { c.Source.Connector = "none" },
		"the kind git is needed":       func(c *api.Trigger) { c.Source.Connector = "hub" },
		"are for another host":         func(c *api.Trigger) { c.Source.Repository = "https://other.invalid/team/app" },
		"for the kind registry":        func(c *api.Trigger) { c.Source.Digests = []string{"a"} },
		"a poll sees push and tag":     func(c *api.Trigger) { c.Events = []api.TriggerEvent{{Type: "comment"}} },
		"are for other kinds":          func(c *api.Trigger) { c.Cron = "@daily" },
		"the scheme is \"file\"":       func(c *api.Trigger) { c.Source.Connector, c.Source.Repository = "", "file:///etc" },
		"the address has credentials": func(c *api.Trigger) {
			c.Source.Connector, c.Source.Repository = "", "https://a:visibly-fake@b.invalid/c"
		},
		"source is for the kinds":     func(c *api.Trigger) { c.Kind, c.Cron, c.Branches = "cron", "@daily", nil },
		"characters that cannot be":   func(c *api.Trigger) { c.Source.Repository = "a\nb" },
		"there is no stored pipeline": func(c *api.Trigger) { c.Pipeline = "none" },
	} {
		wrong := gitTrigger("wrong")
		change(&wrong)
		_, err := s.SetTrigger(t.Context(), account, wrong)
		require.ErrorIs(t, err, pipeline.ErrInvalid, expect)
		require.ErrorContains(t, err, expect)
		assert.NotContains(t, err.Error(), "visibly-fake")
	}
}

// A manager that fails is called again, and the trigger shows the reason until then.
func TestThePerpetualTaskOfATriggerIsWrittenAgain(t *testing.T) {
	t.Parallel()
	m := newSourceManager(t, 1)
	m.failing = errors.New("the store is away")
	s := newService(t, m, withForge)
	store(t, s, "web", skipped(), nil)
	setTrigger(t, s, gitTrigger("pushes"))
	require.Eventually(t, func() bool {
		shown, err := s.Trigger(t.Context(), account, "pushes")
		return err == nil && strings.Contains(shown.LastError, "the store is away")
	}, time.Minute, 10*time.Millisecond)
	m.mu.Lock()
	m.failing = nil
	m.mu.Unlock()
	require.NoError(t, s.SyncSources(t.Context(), time.Now().Add(time.Hour)))
	assert.Len(t, m.has(), 1)
	m.mu.Lock()
	clear(m.tasks) // its store is lost
	m.mu.Unlock()
	require.NoError(t, s.SyncSources(t.Context(), time.Now().Add(2*time.Hour)))
	assert.Len(t, m.has(), 1)
}

// Each event starts one run, also if it comes again. The values reach the run as the values of a webhook do.
func TestEventsOfSourcesStartRuns(t *testing.T) {
	t.Parallel()
	m := newSourceManager(t, 4)
	s := newService(t, m, withForge)
	m.consumers()
	show := strings.NewReplacer("<+trigger.prTitle>", "<+trigger.branch>", "<+codebase.pullRequestBody>", "<+codebase.commitSha>", "<+trigger.payload.pull_request.head.ref>", "<+trigger.payload.old>").Replace(echo)
	store(t, s, "web", show, nil)
	trigger := gitTrigger("pushes")
	trigger.Branches, trigger.Inputs = []string{"**"}, map[string]string{"pipeline.variables.title": "<+trigger.repoUrl>"}
	setTrigger(t, s, trigger)
	const url, old = "https://git.example.invalid/team/app.git", "2222222222222222222222222222222222222222"
	branches := []string{"main", "a/${{secrets.prod}}", "<+pipeline.name>", "`touch-pwned`"}
	var events []any
	for i, b := range branches {
		events = append(events, source.GitEvent{ID: fmt.Sprintf("x-%d", i), Repository: url, Ref: "refs/heads/" + b, Old: old, New: hookCommit})
	}
	m.deliver(t, source.TypeGit, "pushes", events...)
	m.deliver(t, source.TypeGit, "pushes", events...) // the manager failed before it noted the first time
	require.Eventually(t, func() bool { return len(labelled(t, s, "pushes")) == len(branches) }, time.Minute, 10*time.Millisecond)
	m.deliver(t, source.TypeGit, "pushes", events...)
	m.deliver(t, source.TypeGit, "none", events...)
	require.NoError(t, s.StartArrivals(t.Context(), time.Now()))
	runs := labelled(t, s, "pushes")
	require.Len(t, runs, len(branches))
	seen := map[string]bool{}
	for _, r := range runs {
		r = wait(t, s, r.ID)
		assert.Equal(t, "WEBHOOK", r.Cause)
		out := node(t, r, ".show").Outputs
		seen[fmt.Sprint(out["AGAIN"])] = true
		assert.Equal(t, hexOf(url), out["TITLE"], tree(r))
		assert.Equal(t, hexOf(hookCommit), out["MESSAGE"], tree(r))
		assert.Equal(t, hexOf(old), out["BRANCH"], tree(r))
	}
	for _, b := range branches {
		assert.True(t, seen[hexOf(b)], b)
	}
	shown, err := s.Trigger(t.Context(), account, "pushes")
	require.NoError(t, err)
	assert.NotEmpty(t, shown.LastRun)

	store(t, s, "image", strings.NewReplacer("<+trigger.prTitle>", "<+trigger.artifact.build>", "<+codebase.pullRequestBody>", "<+trigger.artifact.digest>", "<+trigger.payload.pull_request.head.ref>", "<+pipeline.triggerType>").Replace(echo), nil)
	setTrigger(t, s, api.Trigger{ID: "images", Kind: "registry", Pipeline: "image", Inputs: map[string]string{"pipeline.variables.title": "<+trigger.type>"}, Source: &api.TriggerSource{Repository: "team/app"}})
	m.deliver(t, source.TypeRegistry, "images", source.RegistryEvent{ID: "y-1", Repository: "team/app", Tag: "v1", Digest: "sha256:fake"})
	require.Eventually(t, func() bool { return len(labelled(t, s, "images")) == 1 }, time.Minute, 10*time.Millisecond)
	r := wait(t, s, labelled(t, s, "images")[0].ID)
	out := node(t, r, ".show").Outputs
	assert.Equal(t, []any{hexOf("Artifact"), hexOf("v1"), hexOf("sha256:fake"), hexOf("ARTIFACT")}, []any{out["TITLE"], out["AGAIN"], out["MESSAGE"], out["BRANCH"]}, tree(r))
}

// Events that the manager has forgotten survive a kill of the service, and start their runs once.
func TestEventsOfSourcesSurviveAKill(t *testing.T) {
	t.Parallel()
	m := newSourceManager(t, 2)
	file := filepath.Join(t.TempDir(), "pipelines.db")
	open := func(c *pipeline.Config) {
		withForge(c)
		c.Database = file
		*c = pipeline.Tuned(*c, time.Second, 20, true)
	}
	cfg := pipeline.Config{Manager: m}
	open(&cfg)
	for round := range 5 {
		s, err := pipeline.New(t.Context(), cfg)
		require.NoError(t, err)
		m.consumers()
		if round == 0 {
			store(t, s, "web", skipped(), nil)
			setTrigger(t, s, gitTrigger("pushes"))
		}
		var events []any
		for i := range 4 {
			events = append(events, source.GitEvent{ID: fmt.Sprintf("x-%d-%d", round, i), Repository: "https://git.example.invalid/a", Ref: "refs/heads/main", New: hookCommit})
		}
		m.deliver(t, source.TypeGit, "pushes", events...)
		if round%2 == 1 { // some have started
			require.NoError(t, s.StartArrivals(t.Context(), time.Now()))
		}
		require.NoError(t, s.Close())
	}
	s := newService(t, m, open)
	require.Eventually(t, func() bool { return len(labelled(t, s, "pushes")) == 20 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.StartArrivals(t.Context(), time.Now()))
	assert.Len(t, labelled(t, s, "pushes"), 20)
}
