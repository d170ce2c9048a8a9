//go:build unix

package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/pipeline/streams"
	"github.com/delegate-io/dlite/manager/redis"
)

// killed is a pipeline whose steps write a line each to the file of their run. The step flaky fails
// once and is retried.
var killed = oneStage("killed", `
              - step:
                  identifier: first
                  name: first
                  type: Run
                  spec:
                    command: |
                      echo first >> FILE
                      export WORD=seen
                    outputVariables: [{name: WORD}]
              - parallel:
                  - step: {identifier: left, name: left, type: Run, spec: {command: "echo left <+steps.first.output.outputVariables.WORD> >> FILE"}}
                  - step: {identifier: right, name: right, type: Run, spec: {command: echo right >> FILE}}
              - step:
                  identifier: flaky
                  name: flaky
                  type: Run
                  spec:
                    command: |
                      echo flaky >> FILE
                      test "$(grep -c flaky FILE)" = 2
                  failureStrategies:
                    - onFailure: {errors: [AllErrors], action: {type: Retry, spec: {retryCount: 1, retryIntervals: [1s], onRetryFailure: {action: {type: MarkAsFailure}}}}}
    - stage:
        identifier: test
        name: test
        type: CI
        spec:
          platform: {os: Linux, arch: Amd64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: last, name: last, type: Run, spec: {command: echo last >> FILE}}
`)

// fatal is a manager as one service sees it. At some calls the service is killed: before the call
// or after it, and the service never gets the answer.
type fatal struct {
	*manager.Manager

	mu    sync.Mutex
	left  int           // calls until the kill
	after bool          // the manager still handles the last call
	dead  chan struct{} // closed at the kill
}

func newFatal(m *manager.Manager, random *rand.Rand, calls int) *fatal {
	return &fatal{Manager: m, left: 1 + random.IntN(calls), after: random.IntN(2) == 0, dead: make(chan struct{})}
}

// call reports whether the caller lives on.
func (f *fatal) call(ctx context.Context, do func()) bool {
	f.mu.Lock()
	f.left--
	left := f.left
	f.mu.Unlock()
	if left > 0 {
		do()
		return true
	}
	if left == 0 {
		if f.after {
			do()
		}
		close(f.dead)
	}
	<-ctx.Done() // the process is gone
	return false
}

func (f *fatal) SubmitStage(ctx context.Context, account string, req api.StageRequest) (st api.Stage, err error) {
	if !f.call(ctx, func() { st, err = f.Manager.SubmitStage(ctx, account, req) }) {
		return st, ctx.Err()
	}
	return st, err
}

func (f *fatal) AppendSteps(ctx context.Context, account, id string, steps []api.StepRequest) (st api.Stage, err error) {
	if !f.call(ctx, func() { st, err = f.Manager.AppendSteps(ctx, account, id, steps) }) {
		return st, ctx.Err()
	}
	return st, err
}

func (f *fatal) FinishStage(ctx context.Context, account, id string) (st api.Stage, err error) {
	if !f.call(ctx, func() { st, err = f.Manager.FinishStage(ctx, account, id) }) {
		return st, ctx.Err()
	}
	return st, err
}

func (f *fatal) AbortStage(ctx context.Context, account, id string) (st api.Stage, err error) {
	if !f.call(ctx, func() { st, err = f.Manager.AbortStage(ctx, account, id) }) {
		return st, ctx.Err()
	}
	return st, err
}

// fleet is a number of services over one database. A service that is killed is replaced.
type fleet struct {
	t        *testing.T
	manager  *manager.Manager
	database string
	redis    *redis.Config // nil for messages in the database
	calls    int           // largest number of calls of a service until its end
	stop     context.CancelFunc
	keepers  sync.WaitGroup

	mu       sync.Mutex
	random   *rand.Rand
	services []*pipeline.Service
	kills    int
}

func newFleet(t *testing.T, m *manager.Manager, database string, messages *redis.Config, services, calls int) *fleet {
	t.Helper()
	seed := testSeed(t)
	f := &fleet{t: t, manager: m, database: database, redis: messages, calls: calls, random: rand.New(rand.NewPCG(seed, 0)), services: make([]*pipeline.Service, services)} //nolint:gosec // a test
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	started := make(chan struct{}, services)
	for i := range services {
		f.keepers.Go(func() { f.keep(ctx, i, started) })
	}
	for range services {
		<-started
	}
	t.Cleanup(f.close)
	return f
}

func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("DLITE_CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64() //nolint:gosec // a test
	}
	t.Logf("DLITE_CHAOS_SEED=%d", seed)
	return seed
}

// keep runs one service after the other until ctx ends.
func (f *fleet) keep(ctx context.Context, i int, started chan<- struct{}) {
	for first := true; ctx.Err() == nil; {
		f.mu.Lock()
		m := newFatal(f.manager, f.random, f.calls)
		f.mu.Unlock()
		cfg := pipeline.Tuned(pipeline.Config{Manager: m, Database: f.database, Lease: time.Minute}, time.Second, 0, true)
		if f.redis != nil {
			cfg.Streams = streams.Redis(*f.redis)
		}
		s, err := pipeline.New(ctx, cfg)
		if err != nil { // the database or Redis is away
			continue
		}
		f.mu.Lock()
		f.services[i] = s
		f.mu.Unlock()
		if first {
			started <- struct{}{}
			first = false
		}
		select {
		case <-ctx.Done():
		case <-m.dead:
			f.mu.Lock()
			f.kills++
			f.mu.Unlock()
		}
		_ = s.Close() // the same
	}
}

func (f *fleet) close() {
	f.stop()
	f.keepers.Wait()
}

// any calls do with services until one of them carries it out.
func (f *fleet) any(ctx context.Context, do func(*pipeline.Service) error) error {
	for {
		f.mu.Lock()
		s := f.services[f.random.IntN(len(f.services))]
		f.mu.Unlock()
		err := do(s)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// run starts a run and returns it when it has ended.
func (f *fleet) run(ctx context.Context, id, file string, abort bool) (r api.Run, err error) {
	req := api.RunRequest{ID: id, YAML: strings.ReplaceAll(killed, "FILE", file)}
	err = f.any(ctx, func(s *pipeline.Service) error { _, err := s.Start(ctx, account, req); return err })
	if err == nil && abort {
		err = f.any(ctx, func(s *pipeline.Service) error {
			_, err := s.Abort(ctx, account, id, api.Order{By: "a test"})
			if err != nil && strings.Contains(err.Error(), "conflict") { // another try did it
				return nil
			}
			return err
		})
	}
	if err != nil {
		return r, err
	}
	err = f.any(ctx, func(s *pipeline.Service) error { r, err = s.Wait(ctx, account, id); return err })
	return r, err
}

func numberOf(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// TestRunsSurviveTheKillsOfAllServicesAndOfTheDatabase kills three services of one PostgreSQL at
// their calls of the manager, and the database once in a while. The sample grows with
// DLITE_CHAOS_RUNS.
func TestRunsSurviveTheKillsOfAllServicesAndOfTheDatabase(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	surviveKills(t, server.URL, nil, func(int) {
		server.Kill()
		server.Start(t)
	})
}

// TestRunsSurviveARedisThatIsKilledOrLosesItsData is the same with messages on Redis, which is killed, does not
// answer, loses its streams or loses everything.
func TestRunsSurviveARedisThatIsKilledOrLosesItsData(t *testing.T) {
	t.Parallel()
	database, messages := testbed.Postgres(t), testbed.Redis(t)
	admin := goredis.NewClient(&goredis.Options{Addr: messages.Address})
	t.Cleanup(func() { _ = admin.Close() })
	surviveKills(t, database.URL, &redis.Config{URL: messages.URL(), Prefix: "p"}, func(kill int) {
		switch kill % 5 {
		case 0:
			assert.NoError(t, admin.FlushAll(t.Context()).Err())
		case 1:
			messages.Kill()
			messages.Start(t)
		case 2: // the hash of what was sent stays
			assert.NoError(t, admin.Del(t.Context(), "{p}:events", "{p}:commands").Err())
		case 3: // longer than claims
			assert.NoError(t, admin.ClientPause(t.Context(), 3*time.Second).Err())
		case 4:
			database.Kill()
			messages.Kill()
			messages.Start(t)
			database.Start(t)
		}
	})
}

// surviveKills runs pipelines while services die, and calls harm once in a while.
func surviveKills(t *testing.T, database string, messages *redis.Config, harm func(int)) {
	t.Helper()
	runs := numberOf("DLITE_CHAOS_RUNS", 12)
	m := newManager(t, 16, func(c *host.Config) { c.Trusted = true }) // steps write to the folder of the test
	f := newFleet(t, m, database, messages, 3, 15)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(runs)*10*time.Second)
	defer cancel()
	ended := make([]api.Run, runs)
	var wg sync.WaitGroup
	places := make(chan struct{}, 12)
	crash := max(runs/5, 2)
	for i := range runs {
		places <- struct{}{}
		if i > 0 && i%crash == 0 {
			harm(i/crash - 1)
		}
		wg.Go(func() {
			defer func() { <-places }()
			r, err := f.run(ctx, fmt.Sprintf("run%d", i), filepath.Join(dir, strconv.Itoa(i)), i%6 == 5)
			if err != nil {
				t.Errorf("run %d: %v", i, err)
			}
			ended[i] = r
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	for i, r := range ended {
		checkKilled(t, r, filepath.Join(dir, strconv.Itoa(i)), i%6 == 5)
	}
	f.mu.Lock()
	t.Logf("%d runs, %d kills of services", runs, f.kills)
	assert.Positive(t, f.kills)
	f.mu.Unlock()
	checkNothingLeft(ctx, t, m, database)
}

func checkKilled(t *testing.T, r api.Run, file string, aborted bool) {
	t.Helper()
	b, err := os.ReadFile(file) //nolint:gosec // a file of the test
	if !aborted {
		require.NoError(t, err)
		assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		assert.ElementsMatch(t, []string{"first", "left seen", "right", "flaky", "flaky", "last"}, lines, tree(r))
		assert.Equal(t, map[string]string{"WORD": "seen"}, node(t, r, ".first").Outputs)
		assert.Equal(t, 2, node(t, r, ".flaky").Attempt)
		return
	}
	assert.Contains(t, []string{"ABORTED", "SUCCEEDED"}, r.Status, tree(r))
	for _, word := range []string{"first", "left", "right", "last"} {
		assert.LessOrEqual(t, strings.Count(string(b), word), 1, "%s\n%s", b, tree(r))
	}
}

// checkNothingLeft waits until the manager has no open stage and the database no message for it.
func checkNothingLeft(ctx context.Context, t *testing.T, m *manager.Manager, database string) {
	t.Helper()
	db, err := sql.Open("pgx", database)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	assert.Eventually(t, func() bool {
		var left int
		err := db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM stages) + (SELECT COUNT(*) FROM steps) + (SELECT COUNT(*) FROM messages WHERE topic <> 'events' OR ready < $1)`,
			time.Now().UnixMilli()).Scan(&left)
		if err != nil {
			t.Error(err)
		}
		for _, st := range m.Stages(account) {
			if !st.Status.Ended() {
				left++
			}
		}
		return left == 0
	}, 2*time.Minute, 100*time.Millisecond)
}
