package drone

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/client"
)

// awaitLoaded waits until a stage of an earlier process is loaded.
func (r *run) awaitLoaded(ctx context.Context) error {
	if !r.resumed {
		r.mu.Lock()
		if r.phase == phaseLoading {
			r.phase = phaseInit
		}
		r.mu.Unlock()
		return nil
	}
	select {
	case <-r.loaded:
		return nil
	case <-ctx.Done():
		return &client.Error{Method: "GET", Path: stagePath(r.id), Err: ctx.Err()}
	}
}

// forgottenAfter is the time after which a stage that the server cannot describe counts as
// removed. The server gives the same status while it cannot read the configuration.
const forgottenAfter = time.Hour

// restore continues with a stage of an earlier process.
func (c *Client) restore(ctx context.Context, r *run) {
	var d *details
	begun := time.Now()
	for p := newPause(); d == nil; {
		var err error
		var answer *client.Error
		if d, err = c.fetch(ctx, r.id); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		c.cfg.Log.Warn().Err(err).Int64("stage", r.id).Msg("cannot read the details of a stage of the earlier process")
		if errors.Is(err, client.ErrGone) || errors.As(err, &answer) && answer.Status == http.StatusInternalServerError && time.Since(begun) > forgottenAfter {
			break
		}
		if !p.wait(ctx, err) {
			return
		}
	}
	if d != nil && (d.Stage.text("machine") != c.cfg.Name || !r.progress.Accepted && !r.ours(d)) {
		close(r.loaded)
		r.over()
		return
	}
	r.mu.Lock()
	r.progress.Accepted = true
	r.mu.Unlock()
	r.rebuild(ctx, d)
	if ctx.Err() != nil { // the plugins were not asked to the end: the next process continues
		return
	}
	close(r.loaded)
	c.cfg.Log.Info().Int64("stage", r.id).Msg("continuing with a stage of the earlier process")
	if d != nil {
		c.goLoop(func(ctx context.Context) { r.watch(ctx) })
	}
	c.news()
}

// rebuild derives the state of the stage from its details and its stored progress. d is nil if
// the server does not know the stage any more.
func (r *run) rebuild(ctx context.Context, d *details) {
	stored := r.progress
	var err error
	if d != nil {
		err = r.load(ctx, d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed, r.problem, r.failCode = stored.Killed, stored.Problem, stored.FailCode
	if r.progress.Started == 0 {
		r.progress.Started = unix()
	}
	switch {
	case d == nil:
		r.killed, r.phase, r.record = true, phaseCleanup, record{}.with(map[string]any{"id": r.id})
		return
	case err != nil:
		r.problem, r.phase = err.Error(), phaseCleanup
		return
	case ended(d.Stage.text("status")), d.cancelled():
		r.killed = true
	}
	known := d.Stage.steps()
	for _, s := range r.steps {
		if from := known[s.plan.Number]; from != nil {
			s.record, stored.Created = from, true
		}
		for _, p := range stored.Steps {
			if p.Number == s.plan.Number && p.Record.number("id") > 0 {
				s.record, s.status, s.reported = p.Record, p.State, p.Reported
				s.unsure = p.State < stepEnded
			}
		}
	}
	r.progress.Created = stored.Created
	switch {
	case !stored.Created && d.Stage.text("status") == statusRunning:
		r.problem, r.steps, r.phase = errLostSteps.Error(), nil, phaseCleanup
	case stored.Cleanup, r.killed && !stored.InitDone:
		r.phase = phaseCleanup
	case !stored.InitDone:
		r.phase = phaseInit
	default:
		r.phase = phaseSteps
		r.early = r.problem != ""
		r.advance()
	}
}
