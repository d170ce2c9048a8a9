package daemonset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// reconciler makes one daemon set what the manager wants: it has the daemon started, replaced, configured and stopped, and
// its tasks handed over and removed.
//
// Only the daemon's own state counts: the reconciler asks the daemon for its tasks and corrects the difference. So a
// daemon that was restarted gets its tasks again.
type reconciler struct {
	r      *Runner
	remove context.CancelFunc
	wake   chan struct{} // receives a value when there may be something to do

	mu        sync.Mutex
	setName   string // id of the daemon set
	typ       string
	wanted    *desired
	now       *generation
	healthy   bool
	problem   error // of the start, the health, or the update
	undone    error // why tasks are missing or left over
	hidden    *secrets.Set
	taskMasks map[string]*secrets.Set
	masks     *secrets.Set // hidden and taskMasks; nil when they have changed
}

func (k *reconciler) id() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.setName
}

func (k *reconciler) setID(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.setName = id
}

// want sets the desired state.
func (k *reconciler) want(d *desired) {
	k.mu.Lock()
	if d.SkipUpdate && k.wanted != nil {
		kept := *k.wanted
		kept.SkipUpdate = true
		d = &kept
	}
	k.wanted = d
	k.mu.Unlock()
	k.wakeUp()
}

// taskIDs returns the desired tasks.
func (k *reconciler) taskIDs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wanted == nil {
		return nil
	}
	return k.wanted.TaskIDs
}

// forgetState makes the state unknown, until the reconciler has looked at a new desired state.
func (k *reconciler) forgetState() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.healthy, k.problem, k.undone = false, nil, nil
}

// push hands a task over that the manager has sent by itself, and makes it a desired one until the next Apply.
func (k *reconciler) push(ctx context.Context, t *task.Task) (string, error) {
	out, set, err := k.payload(ctx, t)
	if err != nil {
		return out.ID, err
	}
	if s := secrets.FromContext(ctx); s != nil {
		set.Include(s)
	}
	k.mu.Lock()
	g := k.now
	if k.wanted != nil && !slices.Contains(k.wanted.TaskIDs, out.ID) {
		more := *k.wanted
		more.TaskIDs = append(slices.Clone(more.TaskIDs), out.ID)
		k.wanted = &more
	}
	k.mu.Unlock()
	var up *daemon
	if g != nil {
		up = g.current()
	}
	if up == nil {
		return out.ID, errors.New("the daemon is not healthy")
	}
	k.changeMasks(func() { k.taskMasks[out.ID] = set })
	return out.ID, up.assign(ctx, []Task{out})
}

func (k *reconciler) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// sameProgram reports whether the daemon of the reconciler is the one of d.
func (k *reconciler) sameProgram(d *desired) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted != nil && k.wanted.err == nil && k.typ == d.Type && k.wanted.program == d.program
}

func (k *reconciler) report() task.DaemonReport {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := task.DaemonReport{ID: k.setName, Type: k.typ, Config: json.RawMessage("{}"), Healthy: k.healthy}
	if k.wanted != nil && len(k.wanted.Config) > 0 {
		out.Config = k.wanted.Config
		if masked := json.RawMessage(k.mask(string(out.Config))); json.Valid(masked) { // a pushed config may have secrets
			out.Config = masked
		} else {
			out.Config = json.RawMessage("{}")
		}
	}
	if err := cmp.Or(k.problem, k.undone); err != nil {
		out.Error = k.mask(fmt.Sprintf("%.1000s", err.Error()))
	}
	return out
}

// update changes the reported state.
func (k *reconciler) update(change func()) {
	before := k.report()
	k.mu.Lock()
	change()
	k.mu.Unlock()
	if after := k.report(); after.Healthy != before.Healthy || after.Error != before.Error {
		k.r.reportChanged()
	}
}

// mask hides the known secrets. The caller holds mu.
func (k *reconciler) mask(text string) string {
	if k.masks == nil {
		k.masks = secrets.NewSet(k.r.cfg.Masks)
		k.masks.Include(k.hidden)
		for _, s := range k.taskMasks {
			k.masks.Include(s)
		}
	}
	return k.masks.Mask(text)
}

// Mask hides the known secrets of the daemon set.
func (k *reconciler) Mask(text string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mask(text)
}

// run keeps the daemon set until ctx ends.
func (k *reconciler) run(ctx context.Context) {
	var g *generation
	defer func() {
		if g != nil {
			g.stop()
		}
	}()
	retry := time.NewTimer(0)
	defer retry.Stop()
	pause := k.r.cfg.Pause
	for {
		select {
		case <-k.wake:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
		d := k.wanted
		k.mu.Unlock()
		if d == nil || d.SkipUpdate {
			continue
		}
		var err error
		if g, err = k.converge(ctx, g, d); ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = k.r.cfg.Pause
			continue
		}
		retry.Reset(pause)
		pause = min(2*pause, k.r.cfg.MaxPause)
	}
}

// converge makes the missing changes. After an error, the caller must call it again.
func (k *reconciler) converge(ctx context.Context, g *generation, d *desired) (*generation, error) {
	if d.err != nil { // the daemon of the last good config stays
		k.update(func() { k.problem = d.err })
		return g, nil
	}
	if g == nil || g.program != d.program {
		if g != nil {
			// The new program is fetched before the old one ends.
			first, err := k.prepare(ctx, d)
			if err != nil {
				k.update(func() { k.problem = fmt.Errorf("update: %w", err) })
				return g, err
			}
			first.release()
			g.stop()
		}
		g = k.newGeneration(d)
		k.mu.Lock()
		k.now = g
		k.mu.Unlock()
		return g, nil
	}
	g.set(d)
	up := g.current()
	if up == nil {
		return g, nil // its health wakes the reconciler
	}
	if !k.configure(ctx, g, up, d) {
		return g, nil // the next daemon wakes the reconciler
	}
	err := k.syncTasks(ctx, up, d)
	if up.ended() { // of a daemon that has ended meanwhile
		return g, nil
	}
	k.update(func() { k.undone = err })
	return g, err
}

// configure hands the settings over, if the daemon does not have them, and reports whether it has them then. A daemon that
// refuses them is started anew.
func (k *reconciler) configure(ctx context.Context, g *generation, up *daemon, d *desired) bool {
	if up.settings == d.settings {
		if !up.ended() {
			k.update(func() { k.healthy, k.problem = true, nil })
		}
		return true
	}
	data, set, err := k.r.resolve(ctx, k.name(), d.Config, d.Secrets, d.literal)
	if err == nil {
		k.changeMasks(func() { k.hidden.Include(set) })
		var c *setConfig
		if c, err = readConfig(data); err == nil {
			if len(c.Settings) == 0 {
				c.Settings = json.RawMessage("null")
			}
			err = up.configure(ctx, c.Settings)
		}
	}
	if err != nil {
		err = fmt.Errorf("settings: %w", err)
		k.update(func() { k.healthy, k.problem = false, err })
		g.renew(errors.New(k.Mask(err.Error())))
		return false
	}
	up.settings = d.settings
	k.update(func() { k.healthy, k.problem = true, nil })
	return true
}

// syncTasks makes the tasks of the daemon those of the daemon set.
func (k *reconciler) syncTasks(ctx context.Context, up *daemon, d *desired) error {
	checking, cancel := context.WithTimeout(ctx, callTimeout)
	has, err := up.tasks(checking)
	cancel()
	if err != nil {
		return err
	}
	wants := map[string]bool{}
	var missing, extra []string
	for _, id := range d.TaskIDs {
		if !has[id] && !wants[id] {
			missing = append(missing, id)
		}
		wants[id] = true
	}
	for id := range has {
		if !wants[id] {
			extra = append(extra, id)
		}
	}
	slices.Sort(extra)
	for ids := range slices.Chunk(extra, maxPayloads) {
		if err := up.remove(ctx, ids); err != nil {
			return fmt.Errorf("remove tasks: %w", err)
		}
		k.changeMasks(func() {
			for _, id := range ids {
				delete(k.taskMasks, id)
			}
		})
		k.r.cfg.Log.Info().Str("daemon_set", d.ID).Strs("task_ids", ids).Msg("tasks were removed from the daemon")
	}
	var failed []error
	for ids := range slices.Chunk(missing, maxPayloads) {
		if err := k.assign(ctx, up, d.ID, ids); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return failed[0]
	}
	return nil
}

// assign fetches tasks and hands them over.
func (k *reconciler) assign(ctx context.Context, up *daemon, set string, ids []string) error {
	k.r.mu.Lock()
	fetch := k.r.link.fetch
	k.r.mu.Unlock()
	got, err := fetch(ctx, ids)
	if err != nil {
		return fmt.Errorf("get tasks from the manager: %w", err)
	}
	var first error
	note := func(err error) { first = cmp.Or(first, err) }
	tasks, masks := []Task{}, map[string]*secrets.Set{}
	for _, t := range got {
		out, set, err := k.payload(ctx, t)
		switch {
		case err != nil:
			note(fmt.Errorf("task %q: %w", t.ID, err))
		case slices.Contains(ids, out.ID) && masks[out.ID] == nil:
			tasks, masks[out.ID] = append(tasks, out), set
		}
	}
	for _, id := range ids {
		if masks[id] == nil {
			note(fmt.Errorf("task %q: the manager did not send it", id))
		}
	}
	if len(tasks) == 0 {
		return first
	}
	k.changeMasks(func() {
		for id, s := range masks {
			k.taskMasks[id] = s
		}
	})
	if err := up.assign(ctx, tasks); err != nil {
		return fmt.Errorf("hand tasks over: %w", err)
	}
	handed := make([]string, len(tasks))
	for i, t := range tasks {
		handed[i] = t.ID
	}
	k.r.cfg.Log.Info().Str("daemon_set", set).Strs("task_ids", handed).Msg("tasks were handed to the daemon")
	return first
}

// changeMasks changes the values that are masked.
func (k *reconciler) changeMasks(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	k.masks = nil
}

func (k *reconciler) name() string { return "daemon set " + k.id() }

// payload returns a task in the form for the daemon, with its references to secrets resolved.
func (k *reconciler) payload(ctx context.Context, t *task.Task) (Task, *secrets.Set, error) {
	var in struct {
		ID     string `json:"daemon_task_id"`
		Params Params `json:"params"`
	}
	if err := json.Unmarshal(t.Data, &in); err != nil {
		return Task{}, nil, errors.New("its data is not that of a daemon task")
	}
	out := Task{ID: cmp.Or(in.ID, t.ID), Params: in.Params}
	if len(t.Secrets) == 0 && !bytes.Contains(in.Params.Data, []byte("${{secrets.")) {
		return out, secrets.NewSet(k.r.cfg.Masks), nil
	}
	type form struct {
		JSON    json.RawMessage `json:"json,omitempty"`
		Text    string          `json:"text,omitempty"`
		Secrets []Secret        `json:"secrets"`
	}
	f := form{}
	switch {
	case json.Valid(in.Params.Data):
		f.JSON = in.Params.Data
	case utf8.Valid(in.Params.Data):
		f.Text = string(in.Params.Data)
	}
	for _, s := range t.Secrets {
		f.Secrets = append(f.Secrets, Secret{ID: s.ID, Value: "${{secrets." + s.ID + "}}"})
	}
	data, err := json.Marshal(f)
	if err != nil {
		return Task{}, nil, err
	}
	resolved, set, err := k.r.resolve(ctx, k.name()+" task "+out.ID, data, t.Secrets, false)
	if err != nil {
		return Task{}, nil, err
	}
	binary := f.JSON == nil && f.Text == ""
	f = form{}
	if err := json.Unmarshal(resolved, &f); err != nil {
		return Task{}, nil, errors.New("its data could not be resolved")
	}
	out.Secrets = f.Secrets
	switch {
	case f.JSON != nil:
		out.Params.Data = f.JSON
	case !binary:
		out.Params.Data = []byte(f.Text)
	}
	return out, set, nil
}
