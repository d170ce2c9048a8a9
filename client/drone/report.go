package drone

import (
	"context"
	"errors"
	"net/http"

	"github.com/delegate-io/dlite/client"
)

var (
	// errCancelled: the server has ended the stage.
	errCancelled = errors.New("the build has been cancelled")
	// errLostSteps: the server has created the steps, and its answer with their ids was lost.
	errLostSteps = errors.New("the answer of the Drone server with the ids of the steps was lost: restart the build")
)

// undelivered reports whether a report must be repeated: the caller gave up, or the server refuses
// the secret, which may be temporary.
func undelivered(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || isRefused(err))
}

// updateErrors is how often an update is tried whose answer has the status 500: about three minutes.
const updateErrors = 25

// maxError is the size of an error of a stage or step, in bytes. The server cuts longer ones.
const maxError = 500

// update replaces a stage or step at the server and returns it with its next version. A conflict
// is left to settle, which gets the version that was sent, and reports whether the server has
// the update. If it has not, the call is repeated with the version that settle returns.
func (r *run) update(
	ctx context.Context, path string, rec record, unsure bool,
	settle func(ctx context.Context, sent int64, unsure bool) (done bool, version int64, err error),
) (record, error) {
	p := newPause()
	for refused, conflicts := 0, 0; ; {
		var answer record
		status, err := r.c.attempt(ctx, request{method: http.MethodPut, path: path, body: jsonBody(rec)}, &answer)
		switch {
		case err == nil && status != http.StatusNoContent:
			for _, name := range []string{"version", "updated"} {
				if v, ok := answer[name]; ok {
					rec = rec.with(map[string]any{name: v})
				}
			}
			if created, ok := answer["steps"]; ok {
				rec = rec.with(map[string]any{"steps": created})
			}
			return rec, nil
		case errors.Is(err, client.ErrConflict):
			done, version, err := settle(ctx, rec.number("version"), unsure)
			if err != nil {
				return rec, err
			}
			rec = rec.with(map[string]any{"version": version})
			if conflicts++; done {
				return rec, nil
			}
			if conflicts >= 3 {
				r.cancel()
				return rec, errCancelled
			}
			unsure = false
			continue
		case err != nil && !temporary(err):
			return rec, err
		case status == http.StatusInternalServerError:
			if refused++; refused >= updateErrors {
				return rec, err
			}
		}
		unsure = true // the server may have the update
		if !p.wait(ctx, err) {
			return rec, errors.Join(err, ctx.Err())
		}
	}
}

// reportStep sends members of a step to the server, and puts them into the record of the step.
func (r *run) reportStep(ctx context.Context, s *step, members map[string]any) error {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	r.mu.Lock()
	next, unsure := s.record.with(members), s.unsure
	gone := r.killed && !r.timedOut // the server has ended the step too
	if gone && next.text("status") == statusSkipped {
		s.record, s.reported = next, statusSkipped
	}
	r.mu.Unlock()
	if s.reported != "" && s.reported == next.text("status") {
		return nil
	}
	next, err := r.update(ctx, stepPath(next.number("id")), next, unsure,
		func(ctx context.Context, sent int64, unsure bool) (bool, int64, error) {
			if gone {
				return false, sent, errCancelled
			}
			d, err := r.c.fetch(ctx, r.id)
			switch {
			case err != nil:
				return false, sent, err
			case d.cancelled() || !unsure:
				r.cancel()
				return false, sent, errCancelled
			}
			return true, sent + 1, nil // only this runner and a cancellation update the step
		})
	if undelivered(ctx, err) {
		return err
	}
	r.mu.Lock()
	s.record, s.unsure, s.reported = next, false, next.text("status")
	r.mu.Unlock()
	r.save()
	if err != nil && !errors.Is(err, errCancelled) {
		r.c.cfg.Log.Warn().Err(err).Int64("stage", r.id).Str("step", s.plan.Name).Msg("the Drone server does not take the status of a step")
	}
	return err
}

// reportStage sends members of the stage to the server, and puts them into the record of the stage.
func (r *run) reportStage(ctx context.Context, members map[string]any) error {
	r.mu.Lock()
	next := r.record.with(members)
	r.mu.Unlock()
	delete(next, "steps") // they are reported one by one
	next, err := r.update(ctx, stagePath(r.id), next, false,
		func(ctx context.Context, sent int64, unsure bool) (bool, int64, error) {
			d, err := r.c.fetch(ctx, r.id)
			switch {
			case err != nil:
				return false, sent, err
			case d.cancelled():
				r.cancel()
				return false, sent, errCancelled
			case ended(d.Stage.text("status")):
				return true, d.Stage.number("version"), nil
			}
			return false, d.Stage.number("version"), nil
		})
	r.mu.Lock()
	r.record = next
	r.mu.Unlock()
	return err
}

// create reports that the stage runs, which creates its steps at the server.
func (r *run) create(ctx context.Context) error {
	r.mu.Lock()
	var list []record
	for _, s := range r.steps {
		list = append(list, s.record)
	}
	next := r.record.with(map[string]any{"status": statusRunning, "started": r.progress.Started, "machine": r.c.cfg.Name, "steps": list})
	r.mu.Unlock()
	p := newPause()
	for refused := 0; ; {
		var answer record
		status, err := r.c.attempt(ctx, request{method: http.MethodPut, path: stagePath(r.id), body: jsonBody(next)}, &answer)
		if err == nil && status != http.StatusNoContent {
			return r.created(next.with(map[string]any{"version": answer["version"]}), answer)
		}
		if err != nil && !temporary(err) && !errors.Is(err, client.ErrConflict) {
			return err
		}
		d, fetchErr := r.c.fetch(ctx, r.id)
		switch {
		case fetchErr != nil:
			return fetchErr
		case d.cancelled():
			return errCancelled
		case d.Stage.number("version") != next.number("version"):
			return r.created(d.Stage, d.Stage)
		}
		if status == http.StatusInternalServerError {
			if refused++; refused >= updateErrors {
				return err
			}
		}
		if !p.wait(ctx, err) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// created takes the ids of the steps from the server's answer.
func (r *run) created(stage, answer record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = stage
	delete(r.record, "steps")
	known := answer.steps()
	for _, s := range r.steps {
		from := known[s.plan.Number]
		if from == nil {
			return errLostSteps
		}
		s.record = s.record.with(map[string]any{"id": from["id"], "version": from["version"]})
		for name, v := range from {
			if _, ours := s.record[name]; !ours {
				s.record[name] = v
			}
		}
	}
	r.progress.Created = true
	return nil
}

// newStep returns the record of a step that the server does not have yet.
func (r *run) newStep(s *step) record {
	rec := record{}.with(map[string]any{
		"step_id": r.id, "number": s.plan.Number, "name": s.plan.Name, "status": statusPending,
		"errignore": s.plan.IgnoreFailure, "exit_code": 0, "image": s.plan.Image, "detached": s.plan.Detached,
	})
	if len(s.plan.DependsOn) > 0 {
		rec = rec.with(map[string]any{"depends_on": s.plan.DependsOn})
	}
	return rec
}

// shorten cuts the text of an error to the size that the server stores.
func shorten(text string) string {
	if len(text) <= maxError {
		return text
	}
	cut := maxError - len("...")
	for cut > 0 && text[cut]&0xC0 == 0x80 { // within a character
		cut--
	}
	return text[:cut] + "..."
}

// endStage reports the end of the stage. The server may have ended it already.
func (r *run) endStage(ctx context.Context) error {
	r.mu.Lock()
	known := ended(r.record.text("status")) // before the stage was opened here
	members := map[string]any{
		"status": r.status(), "stopped": unix(), "exit_code": r.failCode, "error": shorten(r.problem), "started": r.progress.Started,
	}
	r.mu.Unlock()
	if known {
		r.over()
		return nil
	}
	err := r.reportStage(ctx, members)
	if undelivered(ctx, err) {
		return err
	}
	if err != nil && !errors.Is(err, errCancelled) {
		r.c.cfg.Log.Error().Err(err).Int64("stage", r.id).Msg("the Drone server does not take the end of a stage")
	}
	r.over()
	return nil
}

// over forgets the stage.
func (r *run) over() {
	r.mu.Lock()
	r.phase = phaseOver
	end := r.endWatch
	r.mu.Unlock()
	if end != nil {
		end()
	}
	r.decide.Do(func() { close(r.decided) })
	r.c.remove(r)
}
