package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// perpetualEnv is the environment variable for the number of perpetual tasks.
const perpetualEnv = "DLITE_CHAOS_PERPETUAL"

const fewPerpetual = 200

// link of a chain: the state of a task, and its event.
type chainLink struct {
	N     int    // of the successful run
	Token uint64 // of the holder
	By    string // the holder
}

// chainOf returns a handler whose runs continue a chain. Some runs take a while, and some of
// these ignore the end of their context, so that their result is late if the lease is lost.
func chainOf(name string) task.PerpetualFunc {
	by := fmt.Sprintf("%s.%d", name, os.Getpid())
	return func(ctx context.Context, run *task.PerpetualRun) (*task.PerpetualResult, error) {
		var state chainLink
		if len(run.State) > 0 {
			if err := json.Unmarshal(run.State, &state); err != nil {
				return nil, err
			}
		}
		switch (state.N + len(run.ID) + int(run.ID[len(run.ID)-1])) % 7 {
		case 0:
			pause(context.WithoutCancel(ctx), 300*time.Millisecond)
		case 1:
			if !pause(ctx, 300*time.Millisecond) {
				return nil, ctx.Err()
			}
		case 2:
			if state.Token != run.Token && run.Failures == 0 {
				return nil, errors.New("the first run of a holder fails at times")
			}
		}
		text, err := json.Marshal(chainLink{state.N + 1, run.Token, by})
		return &task.PerpetualResult{State: text, Events: []json.RawMessage{text}}, err
	}
}

func runPerpetualDelegate(ctx context.Context, o delegateOrders, order delegateOrder, log zerolog.Logger) error {
	c, err := client.New(o.URL, account, secret, client.WithTimeout(1500*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	p := poller.New(c, router.New(router.RouteMap{}), poller.WithName(order.Name), poller.WithTags(order.Tags...), poller.WithLogger(log),
		poller.WithHeartbeat(500*time.Millisecond), poller.WithWait(2*time.Second), poller.WithPerpetual("chain", chainOf(order.Name)))
	err = p.Run(ctx, 1)
	if errors.Is(err, context.Canceled) {
		err = nil // a signal ended it before it had registered
	}
	return err
}

// consumePerpetual writes the events of perpetual tasks to a file until the manager closes.
func consumePerpetual(m *manager.Manager, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	err = m.ConsumePerpetual(context.Background(), "chain", func(_ context.Context, events []manager.PerpetualEvent) error {
		var b strings.Builder
		for _, e := range events {
			_, _ = fmt.Fprintf(&b, "%d %s %s\n", e.ID, e.Task, e.Data)
		}
		_, err := f.WriteString(b.String())
		return err
	})
	if errors.Is(err, manager.ErrClosed) {
		return nil
	}
	return err
}

// perpetualScene is a scene with perpetual tasks.
type perpetualScene struct {
	*scene
	api      *apiCalls
	count    int
	lease    time.Duration
	interval time.Duration
	events   []string // files
}

// TestPerpetualTasksOnRedis runs perpetual tasks on twenty delegates and three managers
// while faults occur (rule G1). No two holders' results are both taken: each task is a
// chain without a gap or a fork. None is lost. Without other faults, the tasks of a killed
// or paused delegate have another holder within two leases, and those of a drained one at
// once.
func TestPerpetualTasksOnRedis(t *testing.T) {
	s := &perpetualScene{scene: newScene(t), count: fewPerpetual, lease: 2 * time.Second}
	if raceEnabled {
		s.count /= slower
	}
	if text := os.Getenv(perpetualEnv); text != "" {
		var err error
		s.count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	s.interval = max(time.Second, time.Duration(s.count)*4*time.Millisecond)
	if s.count > 10*fewPerpetual {
		s.lease = 10 * time.Second
	}
	s.redis = testbed.Redis(t)
	for i := range 3 {
		l := newLink(t, s.toxics, fmt.Sprint("redis of manager-", i), s.redis.Address)
		s.storeLinks = append(s.storeLinks, l)
		o := managerOrders{
			Socket: filepath.Join(s.dir, fmt.Sprint("manager-", i)), Events: filepath.Join(s.dir, fmt.Sprint("events-", i)), Lease: s.lease,
			Store: "redis://" + l.address() + "?dial_timeout=1s&read_timeout=1s&write_timeout=1s",
		}
		s.events = append(s.events, o.Events)
		s.managers = append(s.managers, newProcess(t, fmt.Sprint("manager-", i), managerEnv, s.dir, o))
		s.apis = append(s.apis, newAPI(t, "unix", o.Socket))
	}
	s.run()
}

func (s *perpetualScene) run() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 40*time.Minute)
	defer cancel()
	var sockets []string
	for _, a := range s.apis {
		sockets = append(sockets, a.name)
	}
	b := newBalancer(s.t, sockets)
	s.api = newAPI(s.t, "tcp", b.address())
	for i := range 4 {
		s.delegateLinks = append(s.delegateLinks, newLink(s.t, s.toxics, fmt.Sprint("field-", i), b.address()))
	}
	for i := range 10 {
		o := delegateOrders{Perpetual: true, URL: "http://" + s.delegateLinks[i%4].address()}
		for j := range 2 {
			o.Delegates = append(o.Delegates, delegateOrder{Name: fmt.Sprintf("d%d%d", i, j), Tags: []string{[]string{"even", "odd"}[j]}})
		}
		s.delegates = append(s.delegates, newProcess(s.t, fmt.Sprint("delegates-", i), delegateEnv, s.dir, o))
	}
	for _, p := range slices.Concat(s.managers, s.delegates) {
		p.start()
	}
	s.create(ctx)
	faults := max(5*time.Second, min(s.interval*3, 4*time.Minute))
	limited, stopFaults := context.WithTimeout(ctx, faults)
	s.injectFaults(limited, faultGap, s.drawFault)
	stopFaults()
	for _, p := range slices.Concat(s.managers, s.delegates) {
		require.NoError(s.t, p.failed())
	}
	s.runAgain(ctx)
	s.move(ctx, "killed", s.delegates[0], 2*s.lease, s.delegates[0].kill)
	s.delegates[0].start()
	s.move(ctx, "paused", s.delegates[1], 2*s.lease, func() { s.delegates[1].signal(syscall.SIGSTOP) })
	s.delegates[1].signal(syscall.SIGCONT)
	s.move(ctx, "drained", s.delegates[2], s.lease, func() { assert.NoError(s.t, s.delegates[2].stop(ctx)) })
	s.runAgain(ctx)
	s.check(ctx)
}

func (s *perpetualScene) id(i int) string { return fmt.Sprintf("chain-%05d", i) }

// create creates the tasks.
func (s *perpetualScene) create(ctx context.Context) {
	var working sync.WaitGroup
	for w := range 8 {
		working.Go(func() {
			for i := w; i < s.count; i += 8 {
				body := api.PerpetualTask{Type: "chain", IntervalMS: s.interval.Milliseconds(), Selectors: [][]string{nil, {"even"}, {"odd"}}[i%3]}
				_, _, err := s.api.insist(ctx, "PUT", "/api/perpetual/"+s.id(i), body, nil)
				assert.NoError(s.t, err)
			}
		})
	}
	working.Wait()
}

// list returns all tasks.
func (s *perpetualScene) list(ctx context.Context) (all []api.PerpetualTask) {
	for after := ""; ; {
		var page struct {
			Tasks []api.PerpetualTask
			Next  string
		}
		_, _, err := s.api.insist(ctx, "GET", "/api/perpetual?after="+after, nil, &page)
		require.NoError(s.t, err)
		all = append(all, page.Tasks...)
		if after = page.Next; after == "" {
			require.Len(s.t, all, s.count, "a task is lost")
			return all
		}
	}
}

// runAgain waits until each task has run successfully again.
func (s *perpetualScene) runAgain(ctx context.Context) {
	before := map[string]uint64{}
	for _, p := range s.list(ctx) {
		before[p.ID] = p.Runs - p.FailedRuns
	}
	begun := time.Now()
	for deadline := begun.Add(2*time.Minute + 3*s.interval); ; {
		var waiting []api.PerpetualTask
		for _, p := range s.list(ctx) {
			if p.Runs-p.FailedRuns <= before[p.ID] {
				waiting = append(waiting, p)
			}
		}
		if len(waiting) == 0 {
			s.t.Logf("each of %d tasks has run again after %v (interval %v)", s.count, time.Since(begun).Round(time.Millisecond), s.interval)
			return
		}
		require.Less(s.t, time.Now(), deadline, "%d tasks do not run, for example %+v", len(waiting), waiting[0])
		pause(ctx, 200*time.Millisecond)
	}
}

// move harms a process and waits until its tasks have other holders.
func (s *perpetualScene) move(ctx context.Context, how string, p *process, within time.Duration, harm func()) {
	o, _ := p.orders.(delegateOrders)
	had := map[string]uint64{}
	for _, t := range s.list(ctx) {
		for _, d := range o.Delegates {
			if t.DelegateName == d.Name {
				had[t.ID] = t.Token
			}
		}
	}
	require.NotEmpty(s.t, had)
	begun := time.Now()
	harm()
	for {
		asked := time.Now()
		left := 0
		for _, t := range s.list(ctx) {
			if token, was := had[t.ID]; was && (t.Token <= token || t.DelegateID == "") {
				left++
			}
		}
		if left == 0 {
			s.t.Logf("%s: %d tasks had other holders after %v (lease %v)", how, len(had), asked.Sub(begun).Round(10*time.Millisecond), s.lease)
			// The answer may be late on a busy machine: the bound is for the question.
			assert.LessOrEqual(s.t, asked.Sub(begun), within+5*time.Second)
			return
		}
		require.Less(s.t, asked.Sub(begun), 2*time.Minute, "%d tasks of a delegate that was %s have no other holder", left, how)
		pause(ctx, 100*time.Millisecond)
	}
}

// check ends all processes and checks the chains.
func (s *perpetualScene) check(ctx context.Context) {
	for _, d := range s.delegates {
		if d != s.delegates[2] {
			assert.NoError(s.t, d.stop(ctx))
		}
	}
	want := map[string]int{}
	for {
		waiting := 0
		for _, p := range s.list(ctx) {
			want[p.ID] = int(p.Runs - p.FailedRuns) //nolint:gosec // it is small
			waiting += p.EventsWaiting
		}
		if waiting == 0 {
			break
		}
		require.NoError(s.t, ctx.Err(), "%d events were not taken", waiting)
		pause(ctx, 100*time.Millisecond)
	}
	for _, m := range s.managers {
		assert.NoError(s.t, m.stop(ctx))
	}
	chains, repeated := s.chains()
	results, moves, failed := 0, 0, 0
	for i := range s.count {
		chain := chains[s.id(i)]
		ids := sorted(chain)
		assert.Len(s.t, ids, want[s.id(i)], "results and events differ")
		var last chainLink
		for _, id := range ids {
			link := chain[id]
			if link.N != last.N+1 || link.Token < last.Token || link.Token == last.Token && link.By != last.By {
				failed++
				assert.Less(s.t, failed, 10, "%s: %+v follows %+v", s.id(i), link, last)
				s.t.Errorf("%s: %+v follows %+v", s.id(i), link, last)
			}
			if link.Token != last.Token {
				moves++
			}
			last = link
		}
		results += len(ids)
	}
	s.t.Logf("%d tasks, 20 delegates, 3 managers: %d results in chains without a gap or a fork, %d assignments, %d late results refused, %d events repeated\n%s",
		s.count, results, moves, s.grep("the manager refused the result"), repeated, s.table())
}

// chains returns the events by task and id.
func (s *perpetualScene) chains() (map[string]map[uint64]chainLink, int) {
	chains, repeated := map[string]map[uint64]chainLink{}, 0
	for _, file := range s.events {
		f, err := os.Open(file)
		require.NoError(s.t, err)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var id uint64
			var name, text string
			if n, _ := fmt.Sscan(lines.Text(), &id, &name, &text); n != 3 {
				continue // the process was killed in it: the events come again
			}
			var link chainLink
			if json.Unmarshal([]byte(text), &link) != nil {
				continue
			}
			if chains[name] == nil {
				chains[name] = map[uint64]chainLink{}
			}
			if _, ok := chains[name][id]; ok {
				repeated++
			}
			chains[name][id] = link
		}
		_ = f.Close()
	}
	return chains, repeated
}

// grep counts the lines of the delegates' logs with a text.
func (s *perpetualScene) grep(text string) (n int) {
	for _, d := range s.delegates {
		b, err := os.ReadFile(d.log())
		require.NoError(s.t, err)
		n += strings.Count(string(b), text)
	}
	return n
}
