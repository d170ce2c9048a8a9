package transaction

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// execution is a step under way.
type execution struct {
	id     string // for a later process
	env    *driver.Environment
	step   *driver.Step
	target LogTarget
	out    *maskedLog
	masks  *secrets.Set

	res *driver.Result
	err error
}

func (t *transaction) newExecution(ctx context.Context, req *task.Request[stage.ExecuteRequest], id string) *execution {
	env := t.environment()
	joinTrace(env.Envs, req.Task)
	step := &driver.Step{Step: req.Data.Step, ExtraVolumes: req.Data.VolumesActual}
	shows := func(arg string) bool { return t.secrets.Mask(arg) != arg }
	step.Conceal = slices.ContainsFunc(step.Run.Entrypoint, shows) || slices.ContainsFunc(step.Run.Command, shows)
	tk, _ := task.FromContext(ctx)
	return &execution{id: id, env: env, step: step, target: logTarget(tk, step.LogConfig, step.LogKey), masks: t.secrets}
}

// environment is what a step gets of the transaction.
func (t *transaction) environment() *driver.Environment {
	env := t.env
	env.Envs, env.Mask = t.variables(), t.secrets.Mask
	return &env
}

// joinTrace makes what the step traces a part of the task's trace (SPEC L3). The
// delegate's span, where its router makes one, is in the task.
func joinTrace(vars map[string]string, t *task.Task) {
	parent, state := t.TraceContext()
	if parent == "" {
		return
	}
	vars["TRACEPARENT"] = parent
	delete(vars, "TRACESTATE") // of another trace, if there is one
	if state != "" {
		vars["TRACESTATE"] = state
	}
}

// taskID names a step for a later process: by its task.
func taskID(ctx context.Context, step string) string {
	if t, ok := task.FromContext(ctx); ok && t.ID != "" {
		return t.ID
	}
	return step
}

func (e *execution) openLog(log Log) {
	e.out = &maskedLog{Masker: secrets.NewMasker(log, e.masks), log: log}
}

// perform has the driver run the step.
func (t *transaction) perform(ctx context.Context, e *execution) {
	if t.notes != nil {
		e.target.Writer = rand.Text()
		t.notes.add(note{Task: e.id, Writer: e.target.Writer})
	}
	e.openLog(t.stages.openLog(ctx, e.target))
	e.err = t.guard(ctx, "execution", func() (err error) {
		e.res, err = t.stages.driver.Execute(ctx, e.env, e.step, e.out, stepLedger{t, e.id})
		return err
	})
}

// endStep says why the step failed where people look first, and closes its log,
// unless the step goes on in the background.
func (t *transaction) endStep(ctx context.Context, e *execution) {
	if e.err != nil {
		e.err = withCause(ctx, e.err)
		_, _ = fmt.Fprintf(e.out, "%v\n", e.err)
	}
	if e.res != nil && e.res.Detached {
		t.keepLog(e.out)
		return
	}
	t.endLog(ctx, e.out, e.step.ID)
}

// remember notes what a later process would answer, and what it would follow.
func (t *transaction) remember(e *execution, r *stage.ExecuteResponse) {
	if t.notes == nil {
		return
	}
	n := note{Task: e.id, Answer: r, Secrets: t.unnoted()}
	if e.res != nil {
		n.Exports = e.res.Env
		if e.res.Detached {
			n.Background = &background{Step: e.step, Log: e.target}
		}
	}
	t.notes.add(n)
}
