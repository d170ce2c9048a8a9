package daemonset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// Runner runs the daemon sets of a delegate. It implements poller.Daemons and is safe for concurrent use.
type Runner struct {
	cfg     Config
	records *records

	mu          sync.Mutex
	running     context.Context        //nolint:containedctx // guarded by mu; of Run, nil outside
	link        link                   // guarded by mu
	reconcilers map[string]*reconciler // by the id of the daemon set; guarded by mu
	changed     chan struct{}          // closed when a report has changed; guarded by mu
	work        sync.WaitGroup         // of the reconcilers
	early       []task.DaemonSet       // of an Apply before Run; guarded by mu
	cgroups     process.Cgroups
	// restarts counts the restarts of daemons.
	restarts atomic.Int64
	applied  bool // guarded by mu
}

// link contains the functions of the poller that the reconcilers need.
type link struct {
	fetch func(ctx context.Context, ids []string) ([]*task.Task, error)
	serve func(ctx context.Context, t *task.Task) *task.Response
}

// New returns a runner. It starts nothing, and fails if a field of cfg is not valid.
func New(cfg Config) (*Runner, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg, records: &records{dir: cfg.State}, reconcilers: map[string]*reconciler{}, changed: make(chan struct{})}, nil
}

// Recover ends the daemons that an earlier process of the delegate has left, and removes the resources that it had created. It must
// succeed before Run. It fails if another process uses the directory of the records.
func (r *Runner) Recover(ctx context.Context) error { return r.recoverRecords(ctx) }

// Run runs the daemon sets that Apply names until ctx ends. Then it stops them, and returns when nothing of them runs.
// fetch gets tasks from the manager. serve runs a task through the delegate's router, which resolves its secrets and
// calls the handlers of Routes.
func (r *Runner) Run(
	ctx context.Context, fetch func(ctx context.Context, ids []string) ([]*task.Task, error), serve func(ctx context.Context, t *task.Task) *task.Response,
) {
	r.mu.Lock()
	r.running, r.link = ctx, link{fetch, serve}
	early, applied := r.early, r.applied
	r.mu.Unlock()
	if applied {
		r.Apply(early)
	}
	<-ctx.Done()
	r.work.Wait()
	r.mu.Lock()
	r.running, r.reconcilers = nil, map[string]*reconciler{}
	r.mu.Unlock()
	r.records.close()
}

// Apply makes the daemon sets of a manager the desired ones. It does not wait for them. A daemon set that is not among
// them is stopped. A daemon set with another id, and the type and the config of one that is not among them, takes over
// its daemon.
func (r *Runner) Apply(sets []task.DaemonSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.early, r.applied = sets, true
	if r.running == nil || r.running.Err() != nil {
		return
	}
	if len(sets) > maxSets {
		r.cfg.Log.Error().Int("daemon_sets", len(sets)).Int("limit", maxSets).Msg("the manager sends too many daemon sets: the rest is ignored")
		sets = sets[:maxSets]
	}
	wanted, order := map[string]*desired{}, []string{}
	for _, s := range sets {
		if wanted[s.ID] != nil || s.ID == "" {
			r.cfg.Log.Error().Str("daemon_set", s.ID).Msg("the manager sends a daemon set without an id, or twice: it is ignored")
			continue
		}
		wanted[s.ID] = newDesired(s)
		order = append(order, s.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(r.reconcilers)) {
		if k := r.reconcilers[id]; wanted[id] == nil && !r.rename(k, order, wanted) {
			k.remove()
			delete(r.reconcilers, id)
			r.announceChange()
		}
	}
	for _, id := range order {
		d := wanted[id]
		k := r.reconcilers[id]
		if k == nil {
			if d.SkipUpdate {
				continue
			}
			k = r.newReconciler(id, d)
		}
		k.want(d)
	}
}

// rename moves a reconciler to a daemon set that differs only in its id. The caller holds mu.
func (r *Runner) rename(k *reconciler, order []string, wanted map[string]*desired) bool {
	for _, id := range order {
		d := wanted[id]
		if r.reconcilers[id] == nil && d.err == nil && k.sameProgram(d) {
			delete(r.reconcilers, k.id())
			r.reconcilers[id] = k
			k.setID(id)
			return true
		}
	}
	return false
}

// newReconciler starts a reconciler. The caller holds mu.
func (r *Runner) newReconciler(id string, d *desired) *reconciler {
	ctx, cancel := context.WithCancel(r.running)
	k := &reconciler{r: r, remove: cancel, wake: make(chan struct{}, 1), hidden: secrets.NewSet(r.cfg.Masks), taskMasks: map[string]*secrets.Set{}}
	k.setName, k.typ = id, d.Type
	r.reconcilers[id] = k
	r.work.Go(func() { k.run(ctx) })
	return k
}

// Report returns the state of each daemon set, and a channel that is closed when it changes.
func (r *Runner) Report() ([]task.DaemonReport, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []task.DaemonReport{}
	for _, id := range slices.Sorted(maps.Keys(r.reconcilers)) {
		out = append(out, r.reconcilers[id].report())
	}
	return out, r.changed
}

// Restarts implements poller.Daemons. It counts since New.
func (r *Runner) Restarts() int64 { return r.restarts.Load() }

// announceChange announces that the report has changed. The caller holds mu.
func (r *Runner) announceChange() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Runner) reportChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announceChange()
}

// Task types that a manager may send: to start or change a daemon set at once, and to hand a task over at once. The next
// answer to a report decides whether they stay.
const (
	typeUpsert = "daemonset/upsert"
	typeAssign = "daemonset/tasks/assign"
)

// resolutionKey marks a task that the runner itself has run through the router, to have its secrets resolved.
type resolutionKey struct{}

// resolution takes the result.
type resolution struct {
	data json.RawMessage
	set  *secrets.Set
}

// resolve returns data with its secrets, and the secrets to mask. Literal data has no references.
func (r *Runner) resolve(ctx context.Context, name string, data json.RawMessage, secretTasks []*task.Task, literal bool) (json.RawMessage, *secrets.Set, error) {
	if len(secretTasks) == 0 && (literal || !mayRefer(data)) {
		return data, secrets.NewSet(r.cfg.Masks), nil
	}
	r.mu.Lock()
	serve := r.link.serve
	r.mu.Unlock()
	got := &resolution{}
	resp := serve(context.WithValue(ctx, resolutionKey{}, got), &task.Task{ID: name, Type: typeAssign, Data: data, Secrets: secretTasks, Literal: literal})
	if resp.Code != task.OK {
		return nil, nil, errors.New(resp.Error)
	}
	if got.set == nil { // the router resolves no secrets
		got.set = secrets.NewSet(r.cfg.Masks)
	}
	return got.data, got.set, nil
}

// mayRefer reports whether JSON may have a reference to a secret or a template, also with escapes.
func mayRefer(data []byte) bool {
	return bytes.Contains(data, []byte("{{")) || bytes.Contains(data, []byte("<{")) || bytes.Contains(data, []byte(`\u00`))
}

// Routes returns the handlers of the task types that the runner needs in the router of its delegate.
func (r *Runner) Routes() map[string]task.Handler {
	return map[string]task.Handler{typeUpsert: task.HandlerFunc(r.pushSet), typeAssign: task.HandlerFunc(r.pushTask)}
}

// pushed is the answer to a task of typeUpsert or typeAssign.
type pushed struct {
	Set   string `json:"daemon_set_id,omitempty"`
	Task  string `json:"daemon_task_id,omitempty"`
	State string `json:"state"`
	Error string `json:"error_message,omitempty"`
}

func (p pushed) because(err error) pushed {
	p.State = "SUCCESS"
	if err != nil {
		p.State, p.Error = "FAILURE", err.Error()
	}
	return p
}

// pushSet starts or changes a daemon set, and waits until it is healthy or fails.
func (r *Runner) pushSet(ctx context.Context, req *task.Request[task.DaemonSet]) (pushed, error) {
	set := req.Data
	if set.ID == "" || set.Type == "" {
		return pushed{}, task.BadRequest(errors.New("daemon_set_id or type is missing"))
	}
	r.mu.Lock()
	if r.running == nil || r.running.Err() != nil {
		r.mu.Unlock()
		return pushed{}, task.Errorf(task.RetryOnOtherDelegate, "this delegate is not running daemon sets")
	}
	var k *reconciler
	for id, other := range r.reconcilers {
		if other.typ == set.Type {
			k = other
			if id != set.ID {
				delete(r.reconcilers, id)
				r.reconcilers[set.ID] = k
				k.setID(set.ID)
			}
			set.TaskIDs = k.taskIDs()
		}
	}
	d := newDesired(set)
	d.literal = true // the router has resolved its secrets
	if k == nil {
		k = r.newReconciler(set.ID, d)
	}
	if s := secrets.FromContext(ctx); s != nil {
		k.changeMasks(func() { k.hidden.Include(s) })
	}
	k.forgetState()
	k.want(d)
	r.mu.Unlock()
	return pushed{Set: set.ID}.because(r.awaitHealth(ctx, k)), nil
}

// awaitHealth waits until a daemon set is healthy or has a problem.
func (r *Runner) awaitHealth(ctx context.Context, k *reconciler) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if now := k.report(); now.Healthy {
			return nil
		} else if now.Error != "" {
			return errors.New(now.Error)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pushTask hands a task over. For a task of the runner itself it takes the resolved data.
func (r *Runner) pushTask(ctx context.Context, req *task.Request[json.RawMessage]) (pushed, error) {
	if got, ok := ctx.Value(resolutionKey{}).(*resolution); ok {
		got.data, got.set = req.Data, secrets.FromContext(ctx)
		return pushed{}, nil
	}
	var in struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(req.Data, &in); err != nil || in.Type == "" {
		return pushed{}, task.BadRequest(errors.New("the data is not that of a daemon task with a type"))
	}
	r.mu.Lock()
	var k *reconciler
	for _, other := range r.reconcilers {
		if other.typ == in.Type {
			k = other
		}
	}
	r.mu.Unlock()
	t := &task.Task{ID: req.Task.ID, Data: req.Data}
	if k == nil {
		return pushed{Task: t.ID}.because(fmt.Errorf("this delegate runs no daemon set of type %q", in.Type)), nil
	}
	id, err := k.push(ctx, t)
	return pushed{Task: id}.because(err), nil
}
