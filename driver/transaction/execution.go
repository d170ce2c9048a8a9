package transaction

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// execution is a running step.
type execution struct {
	id     string // identifies the step for a later process
	env    *driver.Environment
	step   *driver.Step
	target logTarget
	out    *maskedLog
	masks  *secrets.Set

	res *driver.Result
	err error
}

func (t *transaction) newExecution(ctx context.Context, req *task.Request[stage.ExecuteRequest], id string) *execution {
	env := t.environment()
	joinTrace(env.Envs, req.Task)
	step := &driver.Step{Step: req.Data.Step, ExtraVolumes: req.Data.VolumesActual}
	values := t.secrets.Values()
	shows := func(arg string) bool {
		return t.secrets.Mask(arg) != arg || slices.ContainsFunc(values, func(v string) bool { return hasWord(arg, v) })
	}
	step.SecretCommand = slices.ContainsFunc(step.Run.Entrypoint, shows) || slices.ContainsFunc(step.Run.Command, shows)
	tk, _ := task.FromContext(ctx)
	return &execution{id: id, env: env, step: step, target: logTargetOf(tk, step.LogConfig, t.logConfig, step.LogKey), masks: t.secrets}
}

// hasWord reports whether text contains word, and no letter or digit next to it. A command line
// may show no secret, also no value that is too short to be masked in a log. Within longer
// words, such a value occurs by accident.
func hasWord(text, word string) bool {
	inWord := func(b byte) bool {
		return b >= utf8.RuneSelf || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
	}
	for at := 0; ; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		from := at + i
		to := from + len(word)
		if (from == 0 || !inWord(text[from-1])) && (to == len(text) || !inWord(text[to])) {
			return true
		}
		at = from + 1
	}
}

// environment returns the environment of a step.
func (t *transaction) environment() *driver.Environment {
	env := t.env
	env.Envs, env.Mask = t.variables(), t.secrets.Mask
	return &env
}

// joinTrace adds the step to the trace of its task (rule L3). With a tracing
// router the task names the delegate's span.
func joinTrace(vars map[string]string, t *task.Task) {
	parent, state := t.TraceContext()
	if parent == "" {
		return
	}
	vars["TRACEPARENT"] = parent
	delete(vars, "TRACESTATE") // it may belong to another trace
	if state != "" {
		vars["TRACESTATE"] = state
	}
}

// taskID returns the id of the task, by which a later process identifies the step.
func taskID(ctx context.Context, step string) string {
	if t, ok := task.FromContext(ctx); ok && t.ID != "" {
		return t.ID
	}
	return step
}

func (e *execution) openLog(log logger.TaskLog) {
	e.out = &maskedLog{Masker: secrets.NewMasker(log, e.masks), log: log}
}

// runStep runs the step with the driver.
func (t *transaction) runStep(ctx context.Context, e *execution) {
	if t.notes != nil {
		e.target.Writer = rand.Text()
		t.notes.add(note{Task: e.id, Writer: e.target.Writer})
	}
	e.openLog(t.stages.openLog(ctx, e.target.stream()))
	if e.err = t.checkLabels("label", "the step", e.step.Labels); e.err != nil {
		return
	}
	e.err = t.guard(ctx, "execution", func() (err error) {
		e.res, err = t.stages.driver.Execute(ctx, e.env, e.step, e.out, stepLedger{t, e.id})
		return err
	})
}

// explainFailure writes the reason of a failure to the step's log.
func (t *transaction) explainFailure(ctx context.Context, e *execution) {
	if e.err != nil {
		e.err = withCause(ctx, e.err)
		_, _ = fmt.Fprintf(e.out, "%v\n", e.err)
	}
}

// endStep closes the step's log, unless the step continues in the background.
func (t *transaction) endStep(ctx context.Context, e *execution) {
	if e.res != nil && e.res.Detached {
		t.keepLog(e.out)
		return
	}
	t.endLog(ctx, e.out, e.step.ID, e.id)
}

// endEarlierLog ends the log of a step that has ended in an earlier process, if that process was
// killed before the end of the log. The log service gets the whole output again, if the driver still
// has it, and drops the lines that it has.
func (t *transaction) endEarlierLog(ctx context.Context, e *execution, s earlier) {
	if s.logEnded || s.background != nil {
		return
	}
	err := driver.ErrNotBegun
	if len(s.begun) > 0 {
		err = t.continueStep(ctx, e, s)
	}
	if err != nil {
		logger.FromContext(ctx).Debug().Err(err).Msg("only the output that the earlier process has sent is in the log of the step")
	}
	if errors.Is(err, driver.ErrNotBegun) {
		target := e.target
		target.resume("")
		e.openLog(t.stages.openLog(ctx, target.stream()))
	}
	t.endStep(ctx, e)
	e.res.End()
}

// noteAnswer stores the answer of a step, and its background part, for a later
// process.
func (t *transaction) noteAnswer(e *execution, r *stage.ExecuteResponse) {
	if t.notes == nil {
		return
	}
	n := note{Task: e.id, Answer: r, Secrets: t.newSecrets()}
	if e.res != nil {
		n.Exports = e.res.Env
		if e.res.Detached {
			n.Background = &background{Step: e.step, Log: e.target}
		}
	}
	t.notes.add(n)
}
