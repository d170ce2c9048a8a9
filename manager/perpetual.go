package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	wire "github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/perpetual"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// perpetualCommand is an operation on perpetual tasks. One of its pointers, or Delete,
// is set.
type perpetualCommand struct {
	Put    *perpetual.Spec       `json:"put,omitempty"`
	Delete string                `json:"delete,omitempty"`
	Pause  *switchCommand        `json:"pause,omitempty"`
	Kick   string                `json:"kick,omitempty"`
	Report *perpetualReport      `json:"report,omitempty"`
	Take   *perpetualTakeCommand `json:"take,omitempty"`
}

type perpetualReport struct {
	Delegate string `json:"delegate"`
	wire.Report
}

// perpetualTakeCommand claims the events of a type for a consumer, or removes those up
// to Done.
type perpetualTakeCommand struct {
	Type     string `json:"type"`
	Consumer string `json:"consumer"`
	Done     uint64 `json:"done,omitempty"`
}

// executePerpetual executes a perpetualCommand.
func (c *core) executePerpetual(account string, p *perpetualCommand) (refused []wire.Refusal, ok bool, err error) {
	before := c.perpetual.Usage(account)
	defer func() { c.occupy(account, amounts{budgetPerpetual: 1}, c.perpetual.Usage(account)-before) }()
	switch {
	case p.Put != nil:
		err = c.perpetual.Put(account, *p.Put)
	case p.Delete != "":
		err = c.perpetual.Delete(account, p.Delete)
	case p.Pause != nil:
		err = c.perpetual.Pause(account, p.Pause.ID, p.Pause.On, p.Pause.Note)
	case p.Kick != "":
		err = c.perpetual.Kick(account, p.Kick)
	case p.Report != nil:
		refused, err = c.perpetual.Report(account, p.Report.Delegate, &p.Report.Report)
	case p.Take != nil && p.Take.Done > 0:
		c.perpetual.Done(p.Take.Type, p.Take.Consumer, p.Take.Done)
	case p.Take != nil:
		ok = c.perpetual.Claim(p.Take.Type, p.Take.Consumer)
	default:
		err = errors.New("the store holds an operation on perpetual tasks that this version does not know; run the version that wrote it, or a newer one")
	}
	c.wakeLoop() // there may be an earlier deadline
	return refused, ok, err
}

// delegateFacts returns the facts of the queue about a delegate.
func (c *core) delegateFacts(account, delegate string) (perpetual.Facts, bool) {
	name, tags, takes, ok := c.queue.Ability(account, delegate)
	return perpetual.Facts{Name: name, Tags: tags, Takes: takes}, ok
}

// observeDelegates passes on the changes that a command made to delegates.
func (c *core) observeDelegates(cmd *command, registered string) {
	switch a := cmd.Account; {
	case cmd.Register != nil:
		c.perpetual.Observe(a, registered)
	case cmd.Heartbeat != nil:
		c.perpetual.Observe(a, cmd.Heartbeat.ID)
	case cmd.Unregister != nil:
		c.perpetual.Observe(a, cmd.Unregister.ID)
	case cmd.Drain != nil:
		c.perpetual.Observe(a, cmd.Drain.ID)
	case cmd.Pause != nil:
		for _, account := range cmd.Pause.Accounts {
			c.perpetual.ObserveAll(account)
		}
	}
}

// defaultPerpetualTimeout is the time-out of a run that sets none.
const defaultPerpetualTimeout = 10 * time.Minute

// checkPerpetual checks a perpetual task.
func checkPerpetual(t *api.PerpetualTask) error {
	switch {
	case t.ID == "":
		return fmt.Errorf("%w: id is missing: a perpetual task needs one", ErrInvalid)
	case t.Type == "":
		return fmt.Errorf("%w: type is missing: it selects the handler of the delegate", ErrInvalid)
	case t.Loop == (t.IntervalMS != 0):
		return fmt.Errorf("%w: a perpetual task needs interval_ms or loop, one of them", ErrInvalid)
	case !t.Loop && t.IntervalMS < wire.Floor.Milliseconds():
		return fmt.Errorf("%w: interval_ms is %d; it must be at least %d", ErrInvalid, t.IntervalMS, wire.Floor.Milliseconds())
	}
	return firstError(
		checkID("id", t.ID),
		checkSize("name", len(t.Name), maxName),
		checkSize("type", len(t.Type), maxName),
		checkSize("config", len(t.Config), task.MaxPerpetualState),
		checkDuration("interval_ms", t.IntervalMS),
		checkDuration("timeout_ms", t.TimeoutMS),
		checkNames("selectors", t.Selectors),
		checkNote(t.Note),
	)
}

// SetPerpetual adds a perpetual task, or replaces the one with its id. The holder of a
// replaced task hands it back first, unless only its interval or its time-out differ. The
// state stays unless the type differs. SetPerpetual ignores the fields that the manager sets.
// It fails with [ErrInvalid] and [ErrBudget].
func (m *Manager) SetPerpetual(ctx context.Context, account string, t api.PerpetualTask) (api.PerpetualTask, error) {
	if err := checkPerpetual(&t); err != nil {
		return api.PerpetualTask{}, err
	}
	p := perpetual.Spec{
		ID: t.ID, Name: t.Name, Type: t.Type, Config: t.Config, IntervalMS: t.IntervalMS, Loop: t.Loop,
		TimeoutMS: cmp.Or(t.TimeoutMS, defaultPerpetualTimeout.Milliseconds()), Paused: t.Paused, Note: t.Note,
	}
	for _, s := range t.Selectors {
		if s = queue.Fold(s); s != "" {
			p.Selectors = append(p.Selectors, s)
		}
	}
	slices.Sort(p.Selectors)
	p.Selectors = slices.Compact(p.Selectors)
	if _, err := m.Perpetual(account, t.ID); err != nil {
		release, err := m.budgets.take(account, amounts{budgetPerpetual: 1})
		if err != nil {
			return api.PerpetualTask{}, err
		}
		defer release()
	}
	return m.changePerpetual(ctx, account, t.ID, &perpetualCommand{Put: &p})
}

// changePerpetual executes an operation on a task and returns the task.
func (m *Manager) changePerpetual(ctx context.Context, account, id string, p *perpetualCommand) (api.PerpetualTask, error) {
	if _, err := m.applyCommand(ctx, &command{Account: account, Perpetual: p}); err != nil {
		return api.PerpetualTask{}, perpetualError(err)
	}
	return m.Perpetual(account, id)
}

// perpetualError wraps the errors of this package around those of package perpetual.
func perpetualError(err error) error {
	switch {
	case errors.Is(err, perpetual.ErrUnknown):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, perpetual.ErrFull):
		return fmt.Errorf("%w: %w", ErrBudget, err)
	}
	return err
}

// Perpetual returns a perpetual task. It fails with [ErrNotFound].
func (m *Manager) Perpetual(account, id string) (api.PerpetualTask, error) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	v, err := m.core.perpetual.View(account, id)
	if err != nil {
		return api.PerpetualTask{}, perpetualError(err)
	}
	return perpetualView(&v), nil
}

// DeletePerpetual removes a perpetual task. Its run is cancelled. It fails with [ErrNotFound].
func (m *Manager) DeletePerpetual(ctx context.Context, account, id string) error {
	_, err := m.applyCommand(ctx, &command{Account: account, Perpetual: &perpetualCommand{Delete: id}})
	return perpetualError(err)
}

// PausePerpetual takes a perpetual task from its delegate until [Manager.ResumePerpetual].
// Its run is cancelled. The note is shown to people. PausePerpetual fails with
// [ErrNotFound] and [ErrInvalid].
func (m *Manager) PausePerpetual(ctx context.Context, account, id, note string) error {
	if err := checkNote(note); err != nil {
		return err
	}
	_, err := m.changePerpetual(ctx, account, id, &perpetualCommand{Pause: &switchCommand{ID: id, On: true, Note: note}})
	return err
}

// ResumePerpetual ends the pause of a perpetual task. It fails with [ErrNotFound].
func (m *Manager) ResumePerpetual(ctx context.Context, account, id string) error {
	_, err := m.changePerpetual(ctx, account, id, &perpetualCommand{Pause: &switchCommand{ID: id}})
	return err
}

// RunPerpetual asks for a run of a perpetual task now. If one is active, another one
// follows it. It fails with [ErrNotFound], and if the task is paused.
func (m *Manager) RunPerpetual(ctx context.Context, account, id string) error {
	_, err := m.changePerpetual(ctx, account, id, &perpetualCommand{Kick: id})
	return err
}

func perpetualView(v *perpetual.View) api.PerpetualTask {
	at := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms).UTC()
	}
	return api.PerpetualTask{
		ID: v.ID, Name: v.Name, Type: v.Type, Config: v.Config, IntervalMS: v.IntervalMS, Loop: v.Loop, TimeoutMS: v.TimeoutMS,
		Selectors: v.Selectors, Paused: v.Paused, Note: v.Note, State: v.State, CreatedAt: at(int64(v.Created)),
		DelegateID: v.HolderDelegate, DelegateName: v.HolderName, AssignedAt: at(int64(v.Since)), Waiting: v.Waiting, Token: v.Token,
		Runs: v.Runs, FailedRuns: v.Failed, Failures: v.Failures, LastRun: at(int64(v.Started)), DurationMS: v.DurationMS,
		LastSuccess: at(int64(v.Succeeded)), LastError: v.Error, LastErrorAt: at(int64(v.ErrorAt)), NextRun: v.NextAt,
		Blocked: v.Blocked, EventsWaiting: v.Events,
	}
}

func (m *Manager) listPerpetual(w http.ResponseWriter, r *http.Request) {
	limit := maxPage
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			writeError(w, fmt.Errorf("%w: limit is %q; it must be a number from 1 to %d", ErrInvalid, cut(text, maxPathName), maxPage))
			return
		}
		limit = n
	}
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	var out struct {
		Tasks []api.PerpetualTask `json:"tasks"`
		Next  string              `json:"next,omitempty"`
	}
	out.Tasks = m.perpetualPage(account(r), r.URL.Query().Get("after"), limit)
	if len(out.Tasks) > limit {
		out.Tasks = out.Tasks[:limit]
		out.Next = out.Tasks[limit-1].ID
	}
	writeJSON(w, http.StatusOK, out)
}

// perpetualPage returns up to one more than limit tasks after an id.
func (m *Manager) perpetualPage(account, after string, limit int) []api.PerpetualTask {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	out := []api.PerpetualTask{}
	for _, v := range m.core.perpetual.Views(account, after, limit+1) {
		t := perpetualView(&v)
		t.Config, t.State = nil, nil
		out = append(out, t)
	}
	return out
}

func (m *Manager) pausePerpetual(w http.ResponseWriter, r *http.Request) {
	var in api.PauseRequest // the body may be absent
	if r.ContentLength != 0 && !m.decodeStrict(w, r, &in, knownShapes().pause) {
		return
	}
	m.perpetualHandler(func(ctx context.Context, account, id string) error {
		return m.PausePerpetual(ctx, account, id, in.Note)
	})(w, r)
}

// perpetualHandler returns a handler that answers with the task after an operation.
func (m *Manager) perpetualHandler(do func(ctx context.Context, account, id string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := do(r.Context(), account(r), pathParam(r, "id"))
		var t api.PerpetualTask
		if err == nil {
			t, err = synced(r.Context(), m, func() (api.PerpetualTask, error) { return m.Perpetual(account(r), pathParam(r, "id")) })
		}
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, t)
	}
}
