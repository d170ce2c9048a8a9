package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// The environment variables for the number of stages and the random seed. The
// defaults are a few stages and a new seed.
const (
	stagesEnv = "DLITE_CHAOS_STAGES"
	seedEnv   = "DLITE_CHAOS_SEED"
)

const fewStages = 600

// slower is the factor by which runs under the race detector are smaller, because
// all processes run with the detector.
const slower = 3

// TestChaosOnRedis runs three managers on one Redis and twenty delegates while
// faults occur. Managers, delegates and Redis are killed and restarted. Managers and
// delegates are paused, sometimes longer than the heartbeat time-out. Connections
// are cut and slowed (rules Q1, Q4, Q6 and Q7).
func TestChaosOnRedis(t *testing.T) {
	s := newScene(t)
	s.redis = testbed.Redis(t)
	for i := range 3 {
		l := newLink(t, s.toxics, fmt.Sprint("redis of manager-", i), s.redis.Address)
		s.storeLinks = append(s.storeLinks, l)
		s.addManager("redis://" + l.address() + "?dial_timeout=1s&read_timeout=1s&write_timeout=1s")
	}
	s.run()
}

// TestChaosOnSQLite runs one manager on a database. It does not run in parallel with
// the other test, because each has two dozen processes.
func TestChaosOnSQLite(t *testing.T) {
	s := newScene(t)
	s.addManager(filepath.Join(s.dir, "manager.db"))
	s.run()
}

// scene is all processes and connections of a test.
type scene struct {
	t      *testing.T
	dir    string
	seed   uint64
	random *rand.Rand
	orders []order
	toxics *toxiproxy.ApiServer

	redis         *testbed.RedisServer // nil without Redis
	storeLinks    []*link              // the managers' connections to the store
	managers      []*process
	apis          []*apiCalls // one for each manager
	delegates     []*process
	delegateLinks []*link // connections between delegates and managers
	known         map[string]delegateOrder

	mu          sync.Mutex
	faultCounts map[string]int // number of faults by kind
	faulty      map[any]bool   // targets that have a fault now
}

func newScene(t *testing.T) *scene {
	seed, stages := rand.Uint64()>>32, fewStages
	if raceEnabled {
		stages /= slower
	}
	if text := os.Getenv(seedEnv); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err)
	}
	if text := os.Getenv(stagesEnv); text != "" {
		var err error
		stages, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	t.Logf("seed %d: %s=%[1]d repeats this run", seed, seedEnv)
	r := rand.New(rand.NewPCG(seed, 0))
	// A socket's path must be short.
	dir, err := os.MkdirTemp("", "chaos-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs and records are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	s := &scene{
		t: t, dir: dir, seed: seed, random: r, orders: makeOrders(r, stages), toxics: newToxiproxy(),
		known: map[string]delegateOrder{}, faultCounts: map[string]int{}, faulty: map[any]bool{},
	}
	for _, sub := range []string{"effects", "records", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	}
	return s
}

func (s *scene) addManager(store string) {
	name := fmt.Sprint("manager-", len(s.managers))
	o := managerOrders{Socket: filepath.Join(s.dir, name), Store: store}
	s.managers = append(s.managers, newProcess(s.t, name, managerEnv, s.dir, o))
	s.apis = append(s.apis, newAPI(s.t, "unix", o.Socket))
}

// addDelegates starts twenty delegates, eight of them in separate processes.
func (s *scene) addDelegates(address string) {
	for i := range 4 {
		s.delegateLinks = append(s.delegateLinks, newLink(s.t, s.toxics, fmt.Sprint("field-", i), address))
	}
	number := 0
	for i := range 12 {
		o := delegateOrders{Effects: filepath.Join(s.dir, "effects"), Records: filepath.Join(s.dir, "records")}
		o.URL = "http://" + s.delegateLinks[i%len(s.delegateLinks)].address()
		for range 1 + 2*(i/8) {
			d := delegateOrder{Name: fmt.Sprintf("d%02d", number), MaxStages: 1 + s.random.IntN(4), Trusting: number%2 == 0}
			d.Tags = []string{[]string{"even", "odd"}[number%2]}
			if number%3 == 0 {
				d.State = filepath.Join(s.dir, "state", d.Name)
				d.Trusting = false
			}
			s.known[d.Name] = d
			o.Delegates = append(o.Delegates, d)
			number++
		}
		s.delegates = append(s.delegates, newProcess(s.t, fmt.Sprintf("delegates-%02d", i), delegateEnv, s.dir, o))
	}
}

// faultsFor and faultsForEach bound the time of faults, if the stages do not end
// first.
const (
	faultsFor     = 15 * time.Second
	faultsForEach = 40 * time.Millisecond // per stage
)

// finishTimeout is how long all work may take to end without faults.
const finishTimeout = 2 * time.Minute

// run runs all stages under faults and checks the result.
func (s *scene) run() {
	begun := time.Now()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	sockets := make([]string, 0, len(s.apis))
	watchers := newWatchers(s.t)
	for _, a := range s.apis {
		sockets = append(sockets, a.name)
		background.Go(func() { watchers.follow(ctx, a) })
	}
	b := newBalancer(s.t, sockets)
	s.addDelegates(b.address())
	for _, p := range append(s.managers[:len(s.managers):len(s.managers)], s.delegates...) {
		p.start()
	}
	work := &submitters{t: s.t, api: newAPI(s.t, "tcp", b.address()), maxLive: 200, progress: watchers}
	faults, stopFaults := context.WithTimeout(ctx, faultsFor+time.Duration(len(s.orders))*faultsForEach)
	defer stopFaults()
	var injecting sync.WaitGroup
	injecting.Go(func() { s.injectFaults(faults, faultGap, s.drawFault) })
	work.run(ctx, s.orders)
	stopFaults()
	injecting.Wait()
	underFaults := time.Since(begun)
	v := &checker{scene: s, watchers: watchers, work: work}
	v.collect(ctx)
	s.t.Logf("%d stages on %s in %v, of it %v under faults\n%s", len(s.orders), s.store(),
		time.Since(begun).Round(time.Second), underFaults.Round(time.Second), v.table())
	if s.t.Failed() {
		s.t.Logf("seed %d", s.seed)
	}
}

func (s *scene) store() string {
	if s.redis != nil {
		return "Redis"
	}
	return "SQLite"
}

// fault is a fault of a part that lasts for a while.
type fault struct {
	name    string
	target  any
	begin   func() (end func())
	maxTime time.Duration // how long it lasts
}

// faultGap is the mean time between two faults.
const faultGap = 250 * time.Millisecond

// injectFaults causes faults that draw returns, several at a time, until ctx ends. Then it
// ends them all.
func (s *scene) injectFaults(ctx context.Context, gap time.Duration, draw func() fault) {
	var under sync.WaitGroup
	defer under.Wait()
	for pause(ctx, gap/5+upTo(s.random, gap*8/5)) {
		m := draw()
		lasts := upTo(s.random, m.maxTime)
		if !s.startFault(m) {
			continue
		}
		end := m.begin()
		under.Go(func() {
			pause(ctx, lasts)
			end()
			s.endFault(m)
		})
	}
}

func (s *scene) startFault(m fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faulty[m.target] {
		return false
	}
	s.faulty[m.target] = true
	s.faultCounts[m.name]++
	return true
}

func (s *scene) endFault(m fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.faulty, m.target)
}

// drawFault draws the next fault.
func (s *scene) drawFault() fault {
	r := s.random
	m, d, f := s.managers[r.IntN(len(s.managers))], s.delegates[r.IntN(len(s.delegates))], s.delegateLinks[r.IntN(len(s.delegateLinks))]
	choices := []fault{
		{"manager killed", m, killing(m), time.Second},
		{"manager paused", m, pausing(m), 2 * time.Second},
		{"delegates killed", d, killing(d), time.Second},
		{"delegates killed", d, killing(d), time.Second},
		{"delegates paused", d, pausing(d), heartbeatTimeout / 2},
		{"delegates paused for long", d, pausing(d), 2 * heartbeatTimeout},
		{"delegates cut off", f, f.cut, 2 * time.Second},
		{"delegates' requests dropped", f, f.swallow, 2 * time.Second},
		{"delegates slowed", f, f.slow, 3 * time.Second},
	}
	if s.redis != nil {
		l := s.storeLinks[r.IntN(len(s.storeLinks))]
		choices = append(choices,
			fault{"manager paused for long", m, pausing(m), 2 * heartbeatTimeout},
			fault{"Redis killed", s.redis, s.redisKilled, time.Second},
			fault{"manager cut off from Redis", l, l.cut, 3 * time.Second},
			fault{"manager's requests to Redis dropped", l, l.swallow, 3 * time.Second},
			fault{"manager's Redis slowed", l, l.slow, 3 * time.Second},
		)
	}
	return choices[r.IntN(len(choices))]
}

func killing(p *process) func() func() {
	return func() func() { p.kill(); return p.start }
}

func pausing(p *process) func() func() {
	return func() func() {
		p.signal(syscall.SIGSTOP)
		return func() { p.signal(syscall.SIGCONT) }
	}
}

func (s *scene) redisKilled() func() {
	s.redis.Kill()
	return func() { s.redis.Start(s.t) }
}

// table lists the faults that occurred.
func (s *scene) table() string {
	var b strings.Builder
	for _, name := range sorted(s.faultCounts) {
		_, _ = fmt.Fprintf(&b, "  %-58s %6d\n", name, s.faultCounts[name])
	}
	return b.String()
}
