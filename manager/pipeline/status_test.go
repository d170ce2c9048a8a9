package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// statusManager is a manager whose delegate reports statuses to a provider of the test.
type statusManager struct {
	*manager.Manager

	mu    sync.Mutex
	tasks map[string]api.Task
	// provider are the states that the provider has taken, by commit, and links those of the requests.
	provider map[string][]string
	links    map[string]bool
	// answer decides the end of a task. The provider has the state if Sent is true, also if the end of the task is not known.
	answer func(r source.StatusRequest) (a source.StatusAnswer, end api.Status)
	asked  int
}

func newStatusManager(t *testing.T, slots int) *statusManager {
	t.Helper()
	m := &statusManager{Manager: newManager(t, slots), tasks: map[string]api.Task{}, provider: map[string][]string{}, links: map[string]bool{}}
	m.answer = func(source.StatusRequest) (source.StatusAnswer, api.Status) {
		return source.StatusAnswer{Sent: true}, api.Success
	}
	for _, id := range []string{"forge", "other"} {
		_, err := m.SetConnector(t.Context(), account, api.Connector{ID: id, Kind: "github", Address: "https://forge.invalid", Secrets: map[string]string{"token": "fake://token"}})
		require.NoError(t, err)
	}
	return m
}

func (m *statusManager) SubmitTask(ctx context.Context, account string, req manager.TaskRequest) (api.Task, error) {
	if req.Task.Type != source.TypeStatus {
		return m.Manager.SubmitTask(ctx, account, req)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.tasks[req.Task.ID]; ok {
		return t, nil
	}
	var r source.StatusRequest
	if err := json.Unmarshal(req.Task.Data, &r); err != nil {
		return api.Task{}, err
	}
	m.asked++
	m.links[r.Link] = true
	a, end := m.answer(r)
	if end == "" {
		return api.Task{}, errors.New("the manager is away")
	}
	if a.Sent {
		m.provider[r.Commit] = append(m.provider[r.Commit], r.State)
	}
	t := api.Task{ID: req.Task.ID, Status: end}
	if end == api.Success {
		t.Data, _ = json.Marshal(a)
	}
	m.tasks[req.Task.ID] = t
	return t, nil
}

// A service apart from its manager reports over the API of the manager, through a delegate.
func TestAServiceApartFromItsManagerReportsStates(t *testing.T) {
	t.Parallel()
	m := newManager(t, 1)
	_, err := m.SetConnector(t.Context(), account, api.Connector{ID: "forge", Kind: "github", Address: "https://forge.invalid", Secrets: map[string]string{"token": "fake://token"}, Selectors: []string{"reporter"}})
	require.NoError(t, err)
	server := serveManager(t, m)
	var mu sync.Mutex
	var states []string
	c, err := client.New(server.URL, account, secret)
	require.NoError(t, err)
	p := poller.New(c, router.New(router.RouteMap{source.TypeStatus: task.HandlerFunc(func(_ context.Context, req *task.Request[source.StatusRequest]) (source.StatusAnswer, error) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, req.Data.Commit+" "+req.Data.State)
		return source.StatusAnswer{Sent: true}, nil
	})}), poller.WithName("reporter"))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	polled := make(chan error, 1)
	go func() { polled <- p.Poll(context.WithoutCancel(t.Context()), 1, info.ID, time.Second) }()
	t.Cleanup(func() {
		assert.NoError(t, p.Shutdown(context.WithoutCancel(t.Context())))
		assert.NoError(t, <-polled)
		c.CloseIdleConnections()
	})
	s := newService(t, newRemote(t, nowhere, server.URL))
	run(t, s, hello, func(r *api.RunRequest) {
		r.ID, r.CommitStatus = "one", &api.CommitStatus{Connector: "forge"}
		r.Codebase = map[string]any{"commitSha": hookCommit, "repoUrl": "https://forge.invalid/acme/web.git"}
	})
	require.Eventually(t, func() bool {
		r, err := s.Run(t.Context(), account, "one")
		require.NoError(t, err)
		return len(r.Statuses) == 1 && r.Statuses[0].Sent == "success"
	}, time.Minute, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, hookCommit+" success", states[len(states)-1])

	_, err = s.SetPipeline(t.Context(), account, api.Pipeline{ID: "hello", YAML: hello})
	require.NoError(t, err)
	_, err = s.SetTrigger(t.Context(), account, api.Trigger{ID: "poll", Kind: "git", Pipeline: "hello", Source: &api.TriggerSource{Repository: "https://forge.invalid/acme/web.git"}})
	require.ErrorContains(t, err, "use the kind webhook or cron")
}

func (m *statusManager) taken(commit string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.provider[commit])
}

// A run reports its states, with a link, and shows what it has reported.
func TestARunReportsItsState(t *testing.T) {
	t.Parallel()
	m := newStatusManager(t, 1)
	s := newService(t, m, func(c *pipeline.Config) { c.PageURL = "https://manager.invalid" })
	codebase := map[string]any{"commitSha": hookCommit, "repoUrl": "https://forge.invalid/acme/web.git"}
	r := run(t, s, hello, func(r *api.RunRequest) {
		r.ID, r.Codebase, r.CommitStatus = "one", codebase, &api.CommitStatus{Connector: "forge"}
	})
	require.Equal(t, "SUCCEEDED", r.Status, tree(r))
	require.Eventually(t, func() bool {
		taken := m.taken(hookCommit)
		return len(taken) > 0 && taken[len(taken)-1] == "success"
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, map[string]bool{"https://manager.invalid/#/runs/one": true}, m.links)
	require.Eventually(t, func() bool {
		r, err := s.Run(t.Context(), account, "one")
		require.NoError(t, err)
		return assert.ObjectsAreEqual([]api.ReportedStatus{{Provider: "github", Repository: "acme/web", Commit: hookCommit, Context: "dlite/hello", State: "success", Sent: "success"}}, r.Statuses)
	}, time.Minute, 10*time.Millisecond)

	second, err := s.Again(t.Context(), account, "one", api.Order{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		r, err := s.Run(t.Context(), account, second.ID)
		require.NoError(t, err)
		return len(r.Statuses) == 1 && r.Statuses[0].Sent == "success" && r.Status == "SUCCEEDED"
	}, time.Minute, 10*time.Millisecond, "a repeated run reports its state too")

	for expect, change := range map[string]func(*api.RunRequest){
		"name a connector of the manager": func(r *api.RunRequest) { r.CommitStatus.Connector = "none" },
		"whole id of a commit":            func(r *api.RunRequest) { r.Codebase = map[string]any{"commitSha": "abc"} },
		"for another server": func(r *api.RunRequest) {
			r.Codebase = map[string]any{"commitSha": hookCommit, "repoUrl": "https://other.invalid/a/b"}
		},
		"repoUrl is missing": func(r *api.RunRequest) { r.Codebase = map[string]any{"commitSha": hookCommit} },
	} {
		req := api.RunRequest{YAML: hello, Codebase: codebase, CommitStatus: &api.CommitStatus{Connector: "forge"}}
		change(&req)
		_, err := s.Start(t.Context(), account, req)
		require.ErrorIs(t, err, pipeline.ErrInvalid)
		require.ErrorContains(t, err, expect)
	}
}

// Random histories of states, answers and kills: the provider takes states of a commit in their order, and has the
// newest at the end.
func TestStatusesAreInOrder(t *testing.T) {
	t.Parallel()
	const histories = 30
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
	m := newStatusManager(t, 1)
	m.answer = func(source.StatusRequest) (source.StatusAnswer, api.Status) {
		switch random.IntN(8) {
		case 0:
			return source.StatusAnswer{Message: "later"}, api.Success
		case 1:
			return source.StatusAnswer{RetryAfterMS: 60_000}, api.Success
		case 2:
			return source.StatusAnswer{Sent: true}, api.Timeout // the answer is lost
		case 3:
			return source.StatusAnswer{}, api.Failure
		case 4:
			return source.StatusAnswer{}, "" // the manager is away
		}
		return source.StatusAnswer{Sent: true}, api.Success
	}
	cfg := pipeline.Tuned(pipeline.Config{Manager: m, Database: filepath.Join(t.TempDir(), "pipelines.db")}, time.Second, 20, true)
	s, err := pipeline.New(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	at, began := time.Now(), time.Now()
	wanted := map[string][]string{}
	for h := range histories {
		commit := fmt.Sprintf("%040x", h)
		for i := range 1 + random.IntN(5) {
			state := []string{"pending", "running", "success", "failure", "aborted"}[random.IntN(5)]
			if i > 0 && state == wanted[commit][i-1] {
				state = map[bool]string{true: "pending", false: "running"}[state == "running"]
			}
			wanted[commit] = append(wanted[commit], state)
			require.NoError(t, s.QueueStatus(t.Context(), account, "r", began, commit, "forge", state))
			require.NoError(t, s.QueueStatus(t.Context(), account, "earlier", began.Add(-time.Hour), commit, "forge", "aborted"), "an earlier run reports nothing more")
			at = at.Add(time.Duration(random.IntN(120)) * time.Second)
			_ = s.DeliverStatuses(t.Context(), at) // a failure is repeated
			if random.IntN(10) == 0 {
				require.NoError(t, s.Close())
				s, err = pipeline.New(t.Context(), cfg)
				require.NoError(t, err)
			}
		}
	}
	for range 500 {
		at = at.Add(2 * time.Minute)
		_ = s.DeliverStatuses(t.Context(), at)
	}
	for commit, states := range wanted {
		next := 0
		taken := slices.Compact(m.taken(commit)) // a state may be sent twice
		for _, state := range taken {
			i := slices.Index(states[next:], state)
			require.GreaterOrEqual(t, i, 0, "%v of %v", taken, states)
			next += i
		}
		require.NotEmpty(t, taken)
		assert.Equal(t, states[len(states)-1], taken[len(taken)-1], "%v of %v", taken, states)
	}
}

// A provider that limits the rate gets no request for any commit until its pause is over. A status is given up after a
// day, and the run shows it.
func TestPausesAndTheEndOfTries(t *testing.T) {
	t.Parallel()
	m := newStatusManager(t, 1)
	m.answer = func(source.StatusRequest) (source.StatusAnswer, api.Status) {
		return source.StatusAnswer{RetryAfterMS: time.Hour.Milliseconds(), Message: "limited"}, api.Success
	}
	s := newService(t, m)
	one, two := fmt.Sprintf("%040x", 1), fmt.Sprintf("%040x", 2)
	at := time.Now().Add(time.Second)
	require.NoError(t, s.QueueStatus(t.Context(), account, "r", at, one, "forge", "success"))
	require.NoError(t, s.DeliverStatuses(t.Context(), at))
	require.NoError(t, s.QueueStatus(t.Context(), account, "r", at, two, "forge", "success"))
	for range 10 {
		at = at.Add(5 * time.Minute)
		require.NoError(t, s.DeliverStatuses(t.Context(), at))
	}
	m.mu.Lock()
	assert.Equal(t, 1, m.asked)
	m.answer = func(source.StatusRequest) (source.StatusAnswer, api.Status) {
		return source.StatusAnswer{Message: "check the secrets"}, api.Success
	}
	m.mu.Unlock()
	for range 30 * 12 {
		at = at.Add(5 * time.Minute)
		require.NoError(t, s.DeliverStatuses(t.Context(), at))
	}
	m.mu.Lock()
	asked := m.asked
	m.mu.Unlock()
	require.NoError(t, s.DeliverStatuses(t.Context(), at.Add(24*time.Hour)))
	m.mu.Lock()
	defer m.mu.Unlock()
	assert.Equal(t, asked, m.asked, "both were given up")
	assert.Empty(t, m.provider)
}
