package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

// ErrNotOpen means that a stage takes no more steps: it was submitted without
// [api.StageRequest.Hold], or was finished or aborted, or its lease or the stage itself has
// ended. The message says which.
var ErrNotOpen = errors.New("the stage is not open")

// minLease and maxLease bound the lease of a held stage.
const (
	minLease = 1000 // milliseconds
	maxLease = 24 * 60 * 60 * 1000
)

// check checks a hold. Nil is valid.
func checkHold(h *api.Hold, retry *api.Retry) error {
	switch {
	case h == nil:
		return nil
	case retry != nil:
		return fmt.Errorf("%w: retry: a stage with a hold cannot run again, because the manager does not know its steps; let its holder open another stage", ErrInvalid)
	case h.LeaseMS < minLease || h.LeaseMS > maxLease:
		return fmt.Errorf("%w: hold.lease_ms is %d; it may be %d to %d", ErrInvalid, h.LeaseMS, minLease, maxLease)
	}
	if err := checkCount("hold.announced", len(h.Announced), maxSteps); err != nil {
		return err
	}
	for i := range h.Announced {
		if err := checkStep(fmt.Sprintf("hold.announced[%d]", i), &h.Announced[i]); err != nil {
			return err
		}
	}
	return nil
}

// announced returns the steps that the init of a stage announces.
func announced(req *api.StageRequest) []api.StepRequest {
	if req.Hold == nil {
		return req.Steps
	}
	return append(append([]api.StepRequest{}, req.Steps...), req.Hold.Announced...)
}

// appendCommand appends steps to a held stage.
type appendCommand struct {
	ID    string         `json:"id"`
	Steps []appendedStep `json:"steps"`
}

// appendedStep is a step in an appendCommand. Size counts for the budget.
type appendedStep struct {
	State api.StepState `json:"state"`
	Part  savedPart     `json:"part"`
	Size  int           `json:"size"`
}

// AppendSteps adds steps to an open stage. They start as soon as the init has succeeded,
// all at the same time, and also beside the steps of the [api.StageRequest]. Each step needs
// an id. Steps that the stage already has under their ids are left out, so that a caller
// without an answer can repeat the call, also after the end of the stage. An appended step
// always starts, so RunOn must be empty or "always". Either all steps are appended or
// none is. The call begins the lease anew.
//
// AppendSteps fails with [ErrInvalid], [ErrBudget] and [ErrNotFound]. It fails with
// [ErrConflict] if the stage has a different step under one of the ids, and with
// [ErrNotOpen].
func (m *Manager) AppendSteps(ctx context.Context, account, id string, steps []api.StepRequest) (api.Stage, error) {
	s, _, err := m.appendSteps(ctx, account, id, steps)
	return s, err
}

func (m *Manager) appendSteps(ctx context.Context, account, id string, steps []api.StepRequest) (s api.Stage, existed bool, err error) {
	if err := checkAppended(steps); err != nil {
		return api.Stage{}, false, err
	}
	like, err := synced(ctx, m, func() (openStage, error) { return m.core.openStage(account, id, steps) })
	if err != nil {
		return api.Stage{}, false, err
	}
	cmd := &appendCommand{ID: id}
	need := 0
	for i := range steps {
		a, err := m.appendedStep(&like, fmt.Sprintf("steps[%d]", i), &steps[i])
		if err != nil {
			return api.Stage{}, false, err
		}
		if cmd.Steps = append(cmd.Steps, a); !like.known[a.State.ID] {
			need += a.Size
		}
	}
	release, err := m.budgets.take(account, amounts{budgetBytes: need})
	if err != nil {
		return api.Stage{}, false, err
	}
	defer release()
	r, err := m.applyCommand(ctx, &command{Account: account, AppendSteps: cmd})
	if err != nil {
		return api.Stage{}, r.existed, err
	}
	s, err = m.Stage(account, id)
	return s, r.existed, err
}

// checkAppended checks the steps of a call of AppendSteps.
func checkAppended(steps []api.StepRequest) error {
	if len(steps) == 0 {
		return fmt.Errorf("%w: steps is empty: name at least one step", ErrInvalid)
	}
	if err := checkCount("steps", len(steps), maxSteps); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range steps {
		s, path := &steps[i], fmt.Sprintf("steps[%d]", i)
		if err := checkStep(path, s); err != nil {
			return err
		}
		switch {
		case s.ID == "":
			return fmt.Errorf("%w: %s.id is missing: a repeated call is recognized by it", ErrInvalid, path)
		case seen[s.ID]:
			return repeatedStep(path, s.ID)
		case cmp.Or(s.RunOn, runOnAlways) != runOnAlways:
			return fmt.Errorf("%w: %s.run_on is %q; an appended step always starts, so leave it out", ErrInvalid, path, s.RunOn)
		}
		seen[s.ID] = true
	}
	return nil
}

// appendedStep prepares a step for an open stage.
func (m *Manager) appendedStep(like *openStage, path string, req *api.StepRequest) (appendedStep, error) {
	s := *req
	s.Name, s.RunOn = cmp.Or(s.Name, s.ID), runOnAlways
	p, err := m.prepareStep(like.run, like.ids, path, &s)
	if err != nil {
		return appendedStep{}, err
	}
	sum, size, err := digest(s, submissionBounds)
	if err != nil {
		return appendedStep{}, err
	}
	return appendedStep{
		State: p.StepState, Size: size + partSize,
		Part: savedPart{Data: p.data.text, Packed: p.data.small, Timeout: p.timeout, RunOn: p.runOn, Digest: sum},
	}, nil
}

// FinishStage closes an open stage: its cleanup runs when all steps have ended. A stage
// that was finished before, or has ended, does not change. FinishStage fails with
// [ErrNotFound], and with [ErrNotOpen] for a stage without [api.StageRequest.Hold].
func (m *Manager) FinishStage(ctx context.Context, account, id string) (api.Stage, error) {
	return m.changeStage(ctx, account, id, &command{Account: account, FinishStage: &idCommand{id}})
}

// RenewStage begins the lease of an open stage anew. It fails with [ErrNotFound] and
// [ErrNotOpen].
func (m *Manager) RenewStage(ctx context.Context, account, id string) (api.Stage, error) {
	return m.changeStage(ctx, account, id, &command{Account: account, RenewStage: &idCommand{id}})
}

// AbortStep aborts a step of any stage. A step that runs ends when its delegate has
// stopped it, or after [Config.AbortGrace]; a step that waits never starts. The stage
// goes on as after any other failed step, and does not run again. A step that has ended
// does not change. AbortStep fails with [ErrNotFound].
func (m *Manager) AbortStep(ctx context.Context, account, id, step string) (api.Stage, error) {
	return m.changeStage(ctx, account, id, &command{Account: account, AbortStep: &abortStepCommand{ID: id, Step: step}})
}

// changeStage executes a command and returns the stage's state.
func (m *Manager) changeStage(ctx context.Context, account, id string, cmd *command) (api.Stage, error) {
	if _, err := m.applyCommand(ctx, cmd); err != nil {
		return api.Stage{}, err
	}
	return m.Stage(account, id)
}

// Step returns the state of a step of a stage. It takes less time than [Manager.Stage] if
// the stage has many steps. It fails with [ErrNotFound].
func (m *Manager) Step(account, id, step string) (api.StepState, error) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	n := m.core.stages[key{account, id}]
	if n == nil {
		return api.StepState{}, fmt.Errorf("stage %q: %w", id, ErrNotFound)
	}
	p := n.step(step)
	if p == nil {
		return api.StepState{}, fmt.Errorf("step %q of stage %q: %w", step, id, ErrNotFound)
	}
	return p.view(), nil
}

// openStage is the part of a held stage that its further steps are prepared from.
type openStage struct {
	run   *run // only its account and the immutable members of Stage
	ids   stageIDs
	known map[string]bool // the ids of the caller's steps that it has
}

// openStage returns a copy of a held stage for AppendSteps. The stage may have ended,
// because the call may be a repeated one.
func (c *core) openStage(account, id string, steps []api.StepRequest) (openStage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.stages[key{account, id}]
	switch {
	case n == nil:
		return openStage{}, fmt.Errorf("stage %q: %w", id, ErrNotFound)
	case n.held == nil:
		return openStage{}, n.notOpen()
	}
	like := openStage{
		run: &run{account: account, Stage: api.Stage{ID: n.ID, Infra: n.Infra}},
		ids: n.held.ids, known: map[string]bool{},
	}
	for i := range steps {
		if n.held.byID[steps[i].ID] != nil {
			like.known[steps[i].ID] = true
		}
	}
	return like, nil
}

// leaseTime returns the lease of a run, or 0.
func (n *run) leaseTime() time.Duration {
	if n.held == nil {
		return 0
	}
	return n.held.lease
}

func (m *Manager) postSteps(w http.ResponseWriter, r *http.Request) {
	var in api.StepsRequest
	if !m.decodeStrict(w, r, &in, knownShapes().steps) {
		return
	}
	s, existed, err := m.appendSteps(r.Context(), account(r), pathParam(r, "id"), in.Steps)
	processed(r)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, submitStatus(existed), s)
}

// stageHandler returns the handler of a call that changes a stage.
func (m *Manager) stageHandler(change func(ctx context.Context, account, id string) (api.Stage, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m.setLastEvent(w, r)
		s, err := change(r.Context(), account(r), pathParam(r, "id"))
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, s)
	}
}

func (m *Manager) abortStep(w http.ResponseWriter, r *http.Request) {
	s, err := m.AbortStep(r.Context(), account(r), pathParam(r, "id"), pathParam(r, "step"))
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s)
}

func (m *Manager) showStep(w http.ResponseWriter, r *http.Request) {
	m.setLastEvent(w, r)
	s, err := synced(r.Context(), m, func() (api.StepState, error) {
		return m.Step(account(r), pathParam(r, "id"), pathParam(r, "step"))
	})
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s)
}

// newHeld returns the part of a run for its hold.
func newHeld(h *api.Hold) *held {
	return &held{lease: task.Millis(h.LeaseMS).Duration(), byID: map[string]*step{}, sent: map[string]*step{}}
}

// newAppended returns the step of an appendedStep.
func (a *appendedStep) step() *step {
	p := &step{
		StepState: a.State, kind: taskkind.Execute, data: packed{a.Part.Data, a.Part.Packed},
		timeout: a.Part.Timeout, runOn: a.Part.RunOn, digest: a.Part.Digest,
	}
	p.first, p.firstLog = p.TaskID, p.LogKey
	return p
}
