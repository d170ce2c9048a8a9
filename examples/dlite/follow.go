package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// follow calls update with the object after each change, until it has ended.
func follow(ctx context.Context, c *api.Client, o object, lost func(error), update func(object)) (object, error) {
	if o.stage != nil {
		return followStage(ctx, c, o, lost, update)
	}
	return followRun(ctx, c, o, lost, update)
}

func followRun(ctx context.Context, c *api.Client, o object, lost func(error), update func(object)) (object, error) {
	var last error
	for change, err := range c.RunChanges(ctx, o.run.ID, o.run.Version) {
		if last = err; err != nil {
			if ctx.Err() == nil {
				lost(err)
			}
			continue
		}
		next := change.Run
		next.Nodes = merge(o.run.Nodes, change.Nodes)
		o = object{run: &next}
		update(o)
	}
	if !o.run.Ended() && last != nil {
		return o, last
	}
	whole, err := c.Run(ctx, o.run.ID) // the nodes in their order
	return object{run: &whole}, err
}

// merge replaces the nodes that have changed, and adds new ones behind their siblings.
func merge(known, changed []api.Node) []api.Node {
	out := append([]api.Node{}, known...)
	places := map[string]int{}
	for i := range out {
		places[out[i].Path] = i
	}
	for _, n := range changed {
		if i, ok := places[n.Path]; ok {
			out[i] = n
			continue
		}
		at := len(out)
		for i := len(out) - 1; i >= 0; i-- {
			if p := &out[i]; p.Path == n.Parent || strings.HasPrefix(p.Path, n.Parent+".") {
				at = i + 1
				break
			}
		}
		out = append(out[:at], append([]api.Node{n}, out[at:]...)...)
		for i := at; i < len(out); i++ {
			places[out[i].Path] = i
		}
	}
	return out
}

func followStage(ctx context.Context, c *api.Client, o object, lost func(error), update func(object)) (object, error) {
	id := o.stage.ID
	var last error
	for e, err := range c.Events(ctx, api.EventFilter{Stage: id}) {
		if last = err; err != nil {
			if ctx.Err() == nil {
				lost(err)
			}
			continue
		}
		if e.Kind == "place" {
			now := *o.stage
			now.Place, now.Reason = e.Place, e.Reason
			o = object{stage: &now}
			update(o)
			continue
		}
		now, err := c.Stage(ctx, id)
		if err != nil {
			return o, err
		}
		o = object{stage: &now}
		update(o)
		if now.Ended() {
			return o, nil
		}
	}
	return o, last
}

// tails follows the logs of steps.
type tails struct {
	ctx    context.Context //nolint:containedctx // of all logs
	client *api.Client
	line   func(label string, line api.LogLine)
	note   func(text string)
	// silence is how long a log without an end may be silent after the end of its step, and shortSilence the same for a
	// step that perhaps had no log.
	silence, shortSilence time.Duration

	mu      sync.Mutex
	known   map[string]*tail // by the key of the log
	running sync.WaitGroup
}

func newTails(ctx context.Context, client *api.Client, line func(string, api.LogLine), note func(string)) *tails {
	return &tails{
		ctx: ctx, client: client, line: line, note: note, silence: 30 * time.Second, shortSilence: 2 * time.Second, known: map[string]*tail{},
	}
}

// tail is the log of a step.
type tail struct {
	stop context.CancelFunc
	// silent stops the log if it is silent after the end of its step. It is nil before.
	silent  *time.Timer
	most    time.Duration // of the silence
	writing bool          // a line
}

// see begins the logs of steps that have started, and ends those that do not come.
func (t *tails) see(parts []part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range parts {
		if !p.step || p.Key == "" || p.Started.IsZero() {
			continue
		}
		one := t.known[p.Key]
		if one == nil {
			ctx, stop := context.WithCancel(t.ctx)
			one = &tail{stop: stop}
			t.known[p.Key] = one
			t.running.Go(func() { t.follow(ctx, p, one) })
		}
		if p.Ended.IsZero() || one.silent != nil {
			continue
		}
		one.most = t.silence
		if p.mayLackLog {
			one.most = t.shortSilence
		}
		one.silent = time.AfterFunc(one.most, func() { t.silent(one) })
	}
}

func (t *tails) follow(ctx context.Context, p part, one *tail) {
	for line, err := range t.client.FollowLog(ctx, p.Key, 0) {
		if err == nil {
			t.heard(one, true)
			t.line(p.Label, line)
			t.heard(one, false)
		} else if ctx.Err() == nil {
			t.note("! " + err.Error() + ": connecting again")
		}
	}
	t.mu.Lock()
	incomplete := ctx.Err() != nil && t.ctx.Err() == nil && one.most == t.silence
	t.mu.Unlock()
	if incomplete {
		t.note("! the log of " + p.Label + " has no end: lines may be missing. \"dlite delegates\" shows whether its delegate is lost")
	}
}

// silent stops a log, unless its last line is not written yet: the output may be a pager.
func (t *tails) silent(one *tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.writing {
		one.silent.Reset(one.most)
	} else {
		one.stop()
	}
}

// heard begins the silence of a log anew.
func (t *tails) heard(one *tail, writing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.writing = writing
	if one.silent != nil {
		one.silent.Reset(one.most)
	}
}

// wait waits for the ends of the logs.
func (t *tails) wait() {
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.known {
		one.stop()
		if one.silent != nil {
			one.silent.Stop()
		}
	}
}
