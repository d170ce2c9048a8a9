package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// chaotic is a pipeline of three stages. The delegates know its steps by their ids: first has an output, left
// needs it, and flaky fails once. A stage whose delegate is lost runs again.
const chaotic = `
pipeline:
  identifier: chaotic
  name: chaotic
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        failureStrategies: &again [{onFailure: {errors: [AllErrors], action: {type: Retry, spec: {retryCount: 5, retryIntervals: [1s], onRetryFailure: {action: {type: MarkAsFailure}}}}}}]
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: first, name: first, type: Run, spec: {command: "true", outputVariables: [{name: WORD}]}}
              - parallel:
                  - step: {identifier: left, name: left, type: Run, spec: {command: "true", envVariables: {WORD: <+steps.first.output.outputVariables.WORD>}}}
                  - step: {identifier: right, name: right, type: Run, spec: {command: "true"}}
              - step: {identifier: flaky, name: flaky, type: Run, failureStrategies: *again, spec: {command: "true"}}
    - parallel:
        - stage:
            identifier: test
            name: test
            type: CI
            failureStrategies: *again
            strategy: {matrix: {os: [a, b]}}
            spec: {runtime: {type: Docker, spec: {}}, execution: {steps: [step: {identifier: check, name: check, type: Run, spec: {command: "true"}}]}}
        - stage:
            identifier: pack
            name: pack
            type: CI
            failureStrategies: *again
            spec: {runtime: {type: Docker, spec: {}}, execution: {steps: [step: {identifier: pack, name: pack, type: Run, spec: {command: "true"}}]}}
`

// stepsOfRun is the number of steps of a run that succeeds.
const stepsOfRun = 7

// runsEnv is the variable for the number of runs.
const runsEnv = "DLITE_CHAOS_RUNS"

// TestChaosOfRuns runs pipelines by three services on one PostgreSQL, three managers and twenty delegates. One Redis has
// the state of the managers and the messages between the services.
// Services, managers, PostgreSQL and Redis are killed, paused, cut off and slowed. Each run must end, and each
// attempt of a step must run once.
func TestChaosOfRuns(t *testing.T) {
	s := newScene(t)
	s.orders = nil
	runs := 16
	if text := os.Getenv(runsEnv); text != "" {
		_, err := fmt.Sscan(text, &runs)
		require.NoError(t, err)
	}
	p := &runScene{scene: s, postgres: testbed.Postgres(t), ended: make([]api.Run, runs)}
	s.redis = testbed.Redis(t)
	sockets := make([]string, 0, 3)
	for i := range 3 {
		l := newLink(t, s.toxics, fmt.Sprint("redis of manager-", i), s.redis.Address)
		s.storeLinks = append(s.storeLinks, l)
		s.addManager("redis://" + l.address() + "?dial_timeout=1s&read_timeout=1s&write_timeout=1s")
		sockets = append(sockets, s.apis[i].name)
		p.managerLinks = append(p.managerLinks, newLink(t, s.toxics, fmt.Sprint("manager-", i, " of the services"), newBalancer(t, sockets[i:]).address()))
	}
	s.addDelegates(newBalancer(t, sockets).address())
	for i := range 3 {
		p.addService(i)
	}
	p.run()
}

// runScene is a scene with pipeline services.
type runScene struct {
	*scene

	postgres      *testbed.PostgresServer
	services      []*process
	sockets       []string
	databaseLinks []*link // the services' connections to PostgreSQL
	redisLinks    []*link // the services' connections to Redis
	managerLinks  []*link // the services' connections to each manager
	api           *apiCalls
	ended         []api.Run
}

// addService adds a service with its own connection to PostgreSQL, whose socket gets a TCP address.
func (p *runScene) addService(i int) {
	u, err := url.Parse(p.postgres.URL)
	require.NoError(p.t, err)
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")
	l := newLink(p.t, p.toxics, fmt.Sprint("PostgreSQL of service-", i), newBalancer(p.t, []string{socket}).address())
	p.databaseLinks = append(p.databaseLinks, l)
	messages := newLink(p.t, p.toxics, fmt.Sprint("Redis of service-", i), p.redis.Address)
	p.redisLinks = append(p.redisLinks, messages)
	name := fmt.Sprint("service-", i)
	o := serviceOrders{Socket: filepath.Join(p.dir, name), Database: "postgres://postgres@" + l.address() + "/postgres?sslmode=disable&connect_timeout=2"}
	o.Redis = "redis://" + messages.address() + "?dial_timeout=1s&read_timeout=1s&write_timeout=1s"
	for _, m := range p.managerLinks {
		o.Managers = append(o.Managers, "http://"+m.address())
	}
	p.services = append(p.services, newProcess(p.t, name, serviceEnv, p.dir, o))
	p.sockets = append(p.sockets, o.Socket)
}

const (
	// runFaultsFor and runFaultsForEach bound the time of faults, if the runs do not end first.
	runFaultsFor     = 10 * time.Second
	runFaultsForEach = time.Second
	// runFaultGap is the mean time between two faults. Each stage of a run takes a dozen steps through all parts, so
	// that more faults would let no run end.
	runFaultGap = time.Second
	// runsAtOnce is the number of runs that have not ended.
	runsAtOnce = 48
	// runTimeout bounds a run, with the time that faults take.
	runTimeout = 15 * time.Minute
)

// run starts all runs under faults and checks them.
func (p *runScene) run() {
	begun := time.Now()
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	defer cancel()
	p.api = newAPI(p.t, "tcp", newBalancer(p.t, p.sockets).address())
	for _, all := range [][]*process{p.managers, p.services, p.delegates} {
		for _, one := range all {
			one.start()
		}
	}
	faults, stopFaults := context.WithTimeout(ctx, runFaultsFor+time.Duration(len(p.ended))*runFaultsForEach)
	defer stopFaults()
	seed := p.random.Uint64()
	var injecting, running sync.WaitGroup
	injecting.Go(func() { p.injectFaults(faults, runFaultGap, p.drawRunFault) })
	next := make(chan int)
	for i := range runsAtOnce {
		random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test
		running.Go(func() {
			for n := range next {
				p.oneRun(ctx, n, random)
			}
		})
	}
	for n := range p.ended {
		next <- n
	}
	close(next)
	running.Wait()
	stopFaults()
	injecting.Wait()
	underFaults := time.Since(begun)
	v := &checker{scene: p.scene}
	p.check(ctx, v)
	p.t.Logf("%d runs in %v, of it %v under faults\n%s", len(p.ended), time.Since(begun).Round(time.Second), underFaults.Round(time.Second), v.table())
}

// oneRun starts a run, aborts one of eight, and waits for its end.
func (p *runScene) oneRun(ctx context.Context, n int, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	id := fmt.Sprintf("r%05d", n)
	if _, _, err := p.api.insist(ctx, http.MethodPost, "/api/runs", api.RunRequest{ID: id, YAML: chaotic}, nil); err != nil {
		p.t.Errorf("starting %s: %v", id, err)
		return
	}
	if random.IntN(8) == 0 {
		pause(ctx, upTo(random, 500*time.Millisecond))
		if status, _, err := p.api.insist(ctx, http.MethodPost, "/api/runs/"+id+"/abort", nil, nil); err != nil && status != http.StatusConflict {
			p.t.Errorf("aborting %s: %v", id, err)
		}
	}
	for p.ended[n].EndedAt.IsZero() {
		var now api.Run
		if _, _, err := p.api.insist(ctx, http.MethodGet, "/api/runs/"+id+"?wait=1", nil, &now); err != nil || ctx.Err() != nil {
			p.t.Errorf("%s has not ended: %v\n%s", id, err, asJSON(now))
			return
		}
		p.ended[n] = now
	}
}

// drawRunFault draws the next fault.
func (p *runScene) drawRunFault() fault {
	r := p.random
	i := r.IntN(3)
	m, s, store, db, link, messages := p.managers[i], p.services[r.IntN(3)], p.storeLinks[r.IntN(3)], p.databaseLinks[r.IntN(3)], p.managerLinks[r.IntN(3)], p.redisLinks[r.IntN(3)]
	choices := []fault{
		{"service killed", s, killing(s), time.Second},
		{"service killed", s, killing(s), time.Second},
		{"service paused", s, pausing(s), 2 * time.Second},
		{"service paused for longer than its claims", s, pausing(s), serviceLease / 2},
		{"PostgreSQL killed", p.postgres, p.postgresKilled, time.Second},
		{"service cut off from PostgreSQL", db, db.cut, 3 * time.Second},
		{"service's requests to PostgreSQL dropped", db, db.swallow, 3 * time.Second},
		{"service's PostgreSQL slowed", db, db.slow, 3 * time.Second},
		{"service cut off from Redis", messages, messages.cut, 3 * time.Second},
		{"service's requests to Redis dropped", messages, messages.swallow, 3 * time.Second},
		{"services cut off from a manager", link, link.cut, 3 * time.Second},
		{"services' requests to a manager dropped", link, link.swallow, 3 * time.Second},
		{"manager killed", m, killing(m), time.Second},
		{"manager paused", m, pausing(m), 2 * time.Second},
		{"Redis killed", p.redis, p.redisKilled, time.Second},
		{"manager cut off from Redis", store, store.cut, 3 * time.Second},
		{"manager's requests to Redis dropped", store, store.swallow, 3 * time.Second},
	}
	return choices[r.IntN(len(choices))]
}

func (p *runScene) postgresKilled() func() {
	p.postgres.Kill()
	return func() { p.postgres.Start(p.t) }
}

// check checks all runs, the side effects of their steps, and that nothing is left.
func (p *runScene) check(ctx context.Context, v *checker) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if !v.await(ctx, "all stages to end and all slots to be free", func(stages []api.Stage, delegates []api.Delegate) string {
		for _, st := range stages {
			if !st.Status.Ended() {
				return fmt.Sprintf("%s is %s", st.ID, st.Status)
			}
		}
		return occupied(delegates)
	}) {
		return
	}
	p.checkDatabase(ctx, v)
	did := v.effects()
	v.report("side effects", len(did))
	p.checkRuns(v, did)
	for _, all := range [][]*process{p.services, p.delegates, p.managers} {
		v.stopAll(ctx, all)
	}
	v.report("errors", p.t.Failed())
}

// checkRuns checks that each step that succeeded had its side effect, and why runs have failed.
func (p *runScene) checkRuns(v *checker, did map[string]bool) {
	statuses, missing, again := map[string]int{}, 0, 0
	for i := range p.ended {
		r := &p.ended[i]
		statuses[r.Status]++
		stage, attempt, succeeded := "", 0, 0
		for j := range r.Nodes {
			n := &r.Nodes[j]
			if n.StageID != "" {
				stage, attempt = n.StageID, n.Attempt
				if attempt > 1 {
					again++
				}
			}
			if n.Kind != "step" || n.Status != "SUCCEEDED" {
				continue
			}
			succeeded++
			if !did[effectName(stage, n.StepID)] {
				missing++
				p.t.Errorf("%s: %s succeeded in stage %s, but did not run", r.ID, n.Path, stage)
			}
			if n.Identifier == "flaky" && attempt == 1 && (n.Attempt < 2 || !did[effectName(stage, "flaky")]) {
				p.t.Errorf("%s: %s must run twice: %s", r.ID, n.Path, asJSON(n))
			}
		}
		switch r.Status {
		case "SUCCEEDED":
			assert.Equal(p.t, stepsOfRun, succeeded, "steps of %s", r.ID)
		case "ABORTED":
		default:
			p.t.Errorf("%s ended as %s: %s", r.ID, r.Status, asJSON(r))
		}
	}
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		v.report("runs that ended as "+s, statuses[s])
	}
	v.report("stages that were tried again", again)
	v.report("steps that succeeded and did not run", missing)
}

// checkDatabase waits until PostgreSQL holds no work, and checks that no message was given up.
func (p *runScene) checkDatabase(ctx context.Context, v *checker) {
	db, err := sql.Open("pgx", p.postgres.URL)
	require.NoError(p.t, err)
	defer func() { assert.NoError(p.t, db.Close()) }()
	var stages, dead int
	var messages sql.NullString
	for {
		// A timer of a node that has ended may still be due later.
		err = db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM stages) + (SELECT COUNT(*) FROM steps), (SELECT COUNT(*) FROM messages WHERE topic LIKE 'dead/%'),
			(SELECT string_agg(name, ' ') FROM messages WHERE topic = 'commands' OR ready <= $1)`, time.Now().UnixMilli()).Scan(&stages, &dead, &messages)
		if err == nil && stages == 0 && messages.String == "" || !pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	assert.NoError(p.t, err)
	assert.Zero(p.t, stages, "stages and steps in the database")
	assert.Zero(p.t, dead, "messages that were given up")
	assert.Empty(p.t, strings.Fields(messages.String), "messages in the database")
	v.report("messages that were given up", dead)
}
