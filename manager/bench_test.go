package manager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
	"github.com/delegate-io/dlite/task"
)

// bench is a group of managers on one store. The benchmark calls them without a
// network.
type bench struct {
	testing.TB
	managers []*server
}

// onStores runs a benchmark on each store. redis-of-3 has three managers.
func onStores(b *testing.B, run func(*testing.B, *bench), stores ...string) {
	for _, store := range stores {
		b.Run("store="+store, func(b *testing.B) {
			run(b, openBench(b, store))
		})
	}
}

func openBench(b *testing.B, store string) *bench {
	own := func(c *manager.Config) { c.Clock, c.Gap, c.MaxFinished = nil, 0, 1000 }
	g := &bench{TB: b}
	switch store {
	case "memory":
		g.managers = append(g.managers, start(b, own))
	case "sqlite":
		g.managers = append(g.managers, start(b, own, func(c *manager.Config) {
			c.Store, c.StoreKeys = openSQLite(b, b.TempDir()), storeKeys
		}))
	default: // synced before each answer
		r := testbed.Redis(b)
		for range map[string]int{"redis": 1, "redis-of-3": 3}[store] {
			g.managers = append(g.managers, start(b, own, func(c *manager.Config) {
				c.Store, c.StoreKeys = openRedis(b, r.URL(), "bench"), storeKeys
			}))
		}
	}
	for _, s := range g.managers {
		s.token = issue(b, fakeSecret, account, wallNow(), time.Hour)
	}
	return g
}

// some returns a manager; the next number returns another one.
func (g *bench) some(i int) *server { return g.managers[i%len(g.managers)] }

// handle calls a manager's handler and returns an error for a status of an error.
func (s *server) handle(method, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Delegate "+s.token)
	w := httptest.NewRecorder()
	s.m.ServeHTTP(w, r)
	if w.Code >= 300 {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.Bytes(), nil
}

// answerer is a delegate that only acquires and answers.
type answerer struct {
	*bench
	id     string
	name   string
	cursor string
}

func (g *bench) answerer(i int, types ...string) *answerer {
	a := &answerer{bench: g, name: fmt.Sprint("d", i)}
	a.id = g.some(i).register(a.name, types)
	return a
}

// next waits for a task and acquires it. Each call uses another manager.
func (a *answerer) next(i int) (string, error) {
	for {
		b, err := a.some(i).handle("GET", "/api/agent/delegates/"+a.id+"/task-events?accountId=acc&wait=10", "")
		if err != nil {
			return "", err
		}
		var l list
		if err := json.Unmarshal(b, &l); err != nil {
			return "", err
		}
		for _, e := range l.Events { // this manager may not have read the other managers' commands yet
			if got, err := a.acquire(i+1, e.TaskID); got || err != nil {
				return e.TaskID, err
			}
		}
	}
}

// acquire reports false if there is no task.
func (a *answerer) acquire(i int, id string) (bool, error) {
	b, err := a.some(i).handle("PUT", "/api/agent/v2/delegates/"+a.id+"/tasks/"+id+"/acquire?accountId=acc", "")
	return len(b) > 0, err
}

func (a *answerer) answer(i int, id string) error {
	_, err := a.some(i).handle("POST", "/api/agent/v2/tasks/"+id+"/delegates/"+a.id+"?accountId=acc", succeeded)
	return err
}

// measure runs several callers, each with its own delegate. It tells do which of
// them to work for. The figure per second of CPU time includes the callers' work. It
// does not depend on the other load of the machine.
func measure(b *testing.B, callers int, do func(caller, i int) error) {
	free := make(chan int, callers)
	for c := range callers {
		free <- c
	}
	used := cpuTime()
	journaltest.Measure(b, callers, func(i int) error {
		c := <-free
		defer func() { free <- c }()
		return do(c, i)
	})
	b.ReportMetric(float64(b.N)/(cpuTime()-used).Seconds(), "per-cpu-s")
}

// BenchmarkLifeCycles runs stages from submission to end: an init, a step and a
// cleanup, each polled for, acquired and answered. The calls for one stage run in
// sequence, without a network, for 256 delegates at the same time.
func BenchmarkLifeCycles(b *testing.B) {
	onStores(b, func(b *testing.B, g *bench) {
		const delegates = 256
		var all []*answerer
		for i := range delegates {
			all = append(all, g.answerer(i, dockerTypes...))
		}
		measure(b, delegates, func(c, i int) error {
			d := all[c]
			if _, err := g.some(i).handle("POST", "/api/stages?accountId=acc", fmt.Sprintf(
				`{"id":"s%d","selectors":[%q],"steps":[{"data":{"run":{"commands":["make"]}}}]}`, i, d.name)); err != nil {
				return err
			}
			for range 3 {
				id, err := d.next(i)
				if err == nil {
					err = d.answer(i+2, id)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}, "memory", "sqlite", "redis", "redis-of-3")
}

// BenchmarkSubmits submits stages that no delegate can acquire yet.
func BenchmarkSubmits(b *testing.B) {
	onStores(b, func(b *testing.B, g *bench) {
		step := json.RawMessage(`{"run":{"commands":["make"]}}`)
		measure(b, 256, func(_, i int) error {
			_, err := g.some(i).m.SubmitStage(b.Context(), account, api.StageRequest{
				ID: fmt.Sprint("s", i), Steps: []api.StepRequest{{ID: "make", Data: step}},
			})
			return err
		})
	}, "memory", "sqlite", "redis", "redis-of-3")
}

// BenchmarkAssignments submits single tasks, which their delegate acquires, through
// another manager if there is one.
func BenchmarkAssignments(b *testing.B) {
	onStores(b, func(b *testing.B, g *bench) {
		const callers = 1024
		var all []*answerer
		for i := range callers {
			all = append(all, g.answerer(i, "custom"))
		}
		measure(b, callers, func(c, i int) error {
			d, id := all[c], fmt.Sprint("t", i)
			if _, err := g.some(i).m.SubmitTask(b.Context(), account, manager.TaskRequest{
				Task: task.Task{ID: id, Type: "custom"}, Selectors: []string{d.name},
			}); err != nil {
				return err
			}
			_, err := d.acquire(i+1, id)
			return err
		})
	}, "memory", "sqlite", "redis", "redis-of-3")
}

// BenchmarkPickup measures over HTTP the time from the submission of a task until a
// delegate with a held poll has acquired it.
func BenchmarkPickup(b *testing.B) {
	onStores(b, func(b *testing.B, g *bench) {
		d := g.answerer(0, "custom")
		polled, acquired := make(chan struct{}), make(chan error)
		go func() {
			defer close(acquired)
			for range polled {
				acquired <- d.pickUp(b.Context(), "&wait=60")
			}
		}()
		var took []time.Duration
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			id := fmt.Sprint("t", i)
			polled <- struct{}{}
			begun := time.Now()
			d.submit(b, id)
			if err := <-acquired; err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begun))
			if err := d.answer(0, id); err != nil {
				b.Fatal(err)
			}
		}
		close(polled)
		if err, more := <-acquired; more {
			b.Fatal("one poll too many", err)
		}
		report(b, took)
	}, "memory", "sqlite", "redis")
}

// BenchmarkPlainPolls measures the pickup of tasks, submitted at random moments, by
// a delegate that polls every 3 s. It measures once, whatever b.N is.
func BenchmarkPlainPolls(b *testing.B) {
	const every, tasks = 3 * time.Second, 40
	d := openBench(b, "memory").answerer(0, "custom")
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	var mu sync.Mutex
	submitted := map[string]time.Time{}
	var all sync.WaitGroup
	for i := range tasks {
		all.Go(func() {
			wait(rand.N(5 * every))
			id := fmt.Sprint("t", i)
			mu.Lock()
			submitted[id] = time.Now()
			mu.Unlock()
			d.submit(b, id)
		})
	}
	var took []time.Duration
	for len(took) < tasks {
		<-ticks.C
		for _, e := range d.some(0).poll(d.id).Events {
			_, err := d.acquire(0, e.TaskID)
			if err = errors.Join(err, d.answer(0, e.TaskID)); err != nil {
				b.Fatal(err)
			}
			mu.Lock()
			took = append(took, time.Since(submitted[e.TaskID]))
			mu.Unlock()
		}
	}
	all.Wait()
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

func (a *answerer) submit(b *testing.B, id string) {
	if _, err := a.some(0).m.SubmitTask(b.Context(), account, manager.TaskRequest{Task: task.Task{ID: id, Type: "custom"}}); err != nil {
		b.Error(err)
	}
}

// pickUp polls over HTTP until there is a task, and acquires it.
func (a *answerer) pickUp(ctx context.Context, query string) error {
	s := a.some(0)
	for {
		r, err := s.do(ctx, "GET", "/api/agent/delegates/"+a.id+"/task-events?accountId=acc&since="+a.cursor+query, "")
		if err != nil {
			return err
		}
		a.cursor = r.header.Get("Dlite-Cursor")
		var l list
		if err := json.Unmarshal([]byte(r.body), &l); err != nil {
			return err
		}
		if len(l.Events) > 0 {
			_, err := s.do(ctx, "PUT", "/api/agent/v2/delegates/"+a.id+"/tasks/"+l.Events[0].TaskID+"/acquire?accountId=acc", "")
			return err
		}
	}
}
