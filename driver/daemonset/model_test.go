//go:build unix

package daemonset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// world is a driver whose containers are servers in this process, and what runs on it.
type world struct {
	mu      sync.Mutex
	running map[string][]*fakeDaemon // by image; guarded by mu
	left    map[string]bool          // resources that exist; guarded by mu
	moved   chan struct{}            // receives a value after a change
}

type fakeDaemon struct {
	mu    sync.Mutex
	tasks map[string]bool // guarded by mu
	end   context.CancelFunc
}

func (w *world) tell() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

func (*world) Infra() string                                                  { return "fake" }
func (*world) Init(context.Context, *driver.Environment, driver.Ledger) error { return nil }

// Execute runs a container until it is stopped or crashes.
func (w *world) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, _ io.Writer, l driver.Ledger) (*driver.Result, error) {
	if err := l.Record(ctx, driver.Resource{Kind: "fake", ID: env.ID}); err != nil {
		return nil, err
	}
	crashing, crash := context.WithCancel(ctx)
	defer crash()
	d := &fakeDaemon{tasks: map[string]bool{}, end: crash}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(env.Volumes[0].Host.Path, "daemon.sock"))
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.running[step.Image] = append(w.running[step.Image], d)
	w.left[env.ID] = true
	w.mu.Unlock()
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d.serve(rw, r)
		w.tell()
	}), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(crashing, func() { _ = srv.Close() })
	_ = srv.Serve(listener)
	stop()
	w.mu.Lock()
	w.running[step.Image] = slices.DeleteFunc(w.running[step.Image], func(o *fakeDaemon) bool { return o == d })
	w.mu.Unlock()
	w.tell()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &driver.Result{ExitCode: 137}, nil
}

func (d *fakeDaemon) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var in struct{ Tasks []struct{ ID string } }
	switch r.Method {
	case http.MethodPost:
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, t := range in.Tasks {
			d.tasks[t.ID] = true
		}
	case http.MethodDelete:
		for _, id := range r.URL.Query()["taskIds"] {
			delete(d.tasks, id)
		}
	}
	type meta struct {
		ID string `json:"id"`
	}
	out := []meta{}
	for id := range d.tasks {
		out = append(out, meta{id})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"tasks_metadata": out})
}

func (w *world) Cleanup(_ context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rs {
		delete(w.left, r.ID)
	}
	return nil, nil
}

// state returns the tasks of each daemon, by image. An image with several daemons has a key for each.
func (w *world) state() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string][]string{}
	for image, all := range w.running {
		for i, d := range all {
			key := image
			if i > 0 {
				key = fmt.Sprint(image, " again ", i)
			}
			d.mu.Lock()
			out[key] = append([]string{}, slices.Sorted(maps.Keys(d.tasks))...)
			d.mu.Unlock()
		}
	}
	return out
}

// Rule G2: whatever daemon sets a manager wants one after the other, and whatever crashes, loses tasks, cannot be reached
// or is restarted meanwhile, in the end exactly the wanted daemons run, each with exactly its tasks, and nothing is left of
// the others.
func TestTheActualStateBecomesTheDesiredOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{running: map[string][]*fakeDaemon{}, left: map[string]bool{}, moved: make(chan struct{}, 1)}
		var mu sync.Mutex
		away := false // the manager; guarded by mu
		cfg := daemonset.Config{
			State: filepath.Join(t.TempDir(), "state"), Containers: w,
			HealthInterval: 3 * time.Millisecond, HealthFailures: 100, Pause: time.Millisecond, MaxPause: 4 * time.Millisecond,
			StartTimeout: time.Minute, Grace: time.Minute,
		}
		var r *daemonset.Runner
		stop := func() {}
		start := func() {
			var err error
			r, err = daemonset.New(cfg)
			require.NoError(rt, err)
			require.NoError(rt, r.Recover(context.Background()))
			ctx, cancel := context.WithCancel(context.Background())
			routes, done := router.New(r.Routes()), make(chan struct{})
			go func(r *daemonset.Runner) {
				defer close(done)
				r.Run(ctx, func(_ context.Context, ids []string) (out []*task.Task, err error) {
					mu.Lock()
					defer mu.Unlock()
					if away {
						return nil, errors.New("the manager is away")
					}
					for _, id := range ids {
						out = append(out, &task.Task{ID: id, Data: json.RawMessage(`{"daemon_task_id":"` + id + `","params":{"binary_data":"MQ=="}}`)})
					}
					return out, nil
				}, func(ctx context.Context, t *task.Task) *task.Response {
					resp, _ := task.Serve(ctx, routes, t)
					return resp
				})
			}(r)
			stop = func() {
				cancel()
				<-done
			}
		}
		start()
		defer func() { stop() }()
		ids, versions := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.IntRange(1, 2)
		wanted := map[string]task.DaemonSet{}
		apply := func() { r.Apply(slices.Collect(maps.Values(wanted))) }
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			id := ids.Draw(rt, "id")
			switch rapid.SampledFrom([]string{"set", "set", "set", "remove", "crash", "lose", "away", "restart"}).Draw(rt, "what") {
			case "set":
				image := fmt.Sprintf("%s-%d", id, versions.Draw(rt, "version"))
				wanted[id] = task.DaemonSet{
					ID: id, Type: id, Config: json.RawMessage(`{"image":"` + image + `"}`),
					TaskIDs: slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "2", "3", "4"}), 0, 3, rapid.ID).Draw(rt, "tasks"))),
				}
				apply()
			case "remove":
				delete(wanted, id)
				apply()
			case "crash", "lose":
				w.mu.Lock()
				for _, d := range slices.Concat(w.running[id+"-1"], w.running[id+"-2"]) {
					d.mu.Lock()
					clear(d.tasks)
					d.mu.Unlock()
					if rapid.Bool().Draw(rt, "ends") {
						d.end()
					}
				}
				w.mu.Unlock()
			case "away":
				mu.Lock()
				away = !away
				mu.Unlock()
			case "restart":
				stop()
				require.Empty(rt, w.state(), "a daemon survives its runner")
				start()
				apply()
			}
		}
		mu.Lock()
		away = false
		mu.Unlock()
		want := map[string][]string{}
		for _, s := range wanted {
			var c struct{ Image string }
			require.NoError(rt, json.Unmarshal(s.Config, &c))
			want[c.Image] = append([]string{}, s.TaskIDs...)
		}
		limit := time.After(time.Minute)
		for !maps.EqualFunc(want, w.state(), slices.Equal) {
			select {
			case <-w.moved:
			case <-limit:
				require.Equal(rt, want, w.state())
			}
		}
		stop()
		require.Empty(rt, w.state())
		require.Empty(rt, w.left)
	})
}
