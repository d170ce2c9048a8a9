package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// step is one start of a step.
type step struct {
	tx  *transaction
	req *StartStepRequest
	out *output

	stop context.CancelCauseFunc
	ctx  context.Context //nolint:containedctx // lifetime of the step, not of a call

	over   chan struct{}     // closed when the driver has finished the step
	done   chan struct{}     // closed when answer is set
	answer *pollStepResponse // set before done is closed
}

func newStep(t *transaction, req *StartStepRequest) *step {
	s := &step{
		tx: t, req: req, over: make(chan struct{}), done: make(chan struct{}),
		out: newOutput(t.agent.cfg.TempDir, t.agent.cfg.MaxMemory),
	}
	s.ctx, s.stop = context.WithCancelCause(t.alive)
	return s
}

// errStopped is the default cause of a stopped step.
var errStopped = errors.New("the step was stopped")

// run executes the step, then closes its log, answers polls and reports its end.
func (s *step) run() {
	t := s.tx
	t.masks.Add(s.req.Secrets...)
	if s.req.Auth != nil {
		t.masks.Add(s.req.Auth.Password) // errors can quote the answers of registries
	}
	log := s.openLog()
	res, err := s.execute(tee{s.out, log})
	close(s.over)
	t.agent.cfg.Log.Debug().Str("step", s.req.ID).Bool("ok", err == nil).Msg("a step has ended")
	if res != nil {
		t.masks.Add(slices.Collect(maps.Values(res.Secrets))...)
		t.export(s.req.StageRuntimeID, res.Env)
	}
	if err != nil {
		_, _ = fmt.Fprintf(log, "%v\n", err)
	}
	detached := err == nil && res.Detached
	if !detached {
		s.out.end()
		s.closeLog(log)
	}
	s.answer = s.newAnswer(res, err)
	s.stop(nil)
	close(s.done)
	s.report()
	if detached {
		// The log continues until the destroy of the stage ends the output.
		<-s.out.over
		s.closeLog(log)
	}
}

// tee writes to both. An error of the log does not affect the output.
type tee struct {
	out *output
	log io.Writer
}

// Write implements [io.Writer].
func (t tee) Write(p []byte) (int, error) {
	_, _ = t.log.Write(p)
	return t.out.Write(p)
}

func (s *step) execute(out io.Writer) (res *driver.Result, err error) {
	t := s.tx
	shows := func(arg string) bool { return t.masks.Mask(arg) != arg }
	step := &driver.Step{
		Step: s.req.Step, ExtraVolumes: s.req.VolumesActual,
		SecretCommand: s.req.Conceal || slices.ContainsFunc(s.req.Run.Entrypoint, shows) || slices.ContainsFunc(s.req.Run.Command, shows),
	}
	err = guard("execution", func() error {
		res, err = t.agent.driver.Execute(s.ctx, t.environment(s.req.StageRuntimeID), step, out, &t.ledger)
		return err
	})
	if err == nil && res == nil {
		err = errors.New("the driver returned no result")
	}
	if err == nil {
		res.End()
		return res, nil
	}
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause) // the cause of the stop
	}
	return nil, err
}

// internalError is the exit code of an error that is not the end of a process.
const internalError = 255

// newAnswer describes the end of the step in the fields of the protocol and in the extensions.
func (s *step) newAnswer(res *driver.Result, err error) *pollStepResponse {
	a := &pollStepResponse{Result: res, Length: s.out.length()}
	switch {
	case err != nil:
		text := s.tx.masks.Mask(err.Error())
		a.Exited, a.ExitCode, a.Error = true, internalError, text
		a.Failure = &failure{Error: text, Timeout: errors.Is(err, context.DeadlineExceeded), Stopped: s.ctx.Err() != nil}
		if a.Failure.Timeout {
			a.Error = context.DeadlineExceeded.Error()
		}
		return a
	case res.Detached:
		a.Length = 0
		return a
	}
	a.Exited, a.ExitCode, a.OOMKilled = true, res.ExitCode, res.OOMKilled
	// Foreign drivers detect a failure by the error, not by the exit code.
	switch {
	case res.OOMKilled:
		a.ExitCode, a.Error = internalError, "the step ran out of memory"
	case res.ExitCode != 0:
		a.Error = fmt.Sprintf("exit status %d", res.ExitCode)
	case res.Lost != "":
		a.ExitCode, a.Error = internalError, s.tx.masks.Mask(res.Lost)
	}
	a.Outputs, a.Envs, a.Artifact = res.Outputs, res.Env, res.Artifact
	a.OutputV2 = outputs(res)
	return a
}

// outputs lists the outputs of a step, secrets last.
func outputs(res *driver.Result) []stage.Output {
	var list []stage.Output
	for _, k := range slices.Sorted(maps.Keys(res.Outputs)) {
		list = append(list, stage.Output{Key: k, Value: res.Outputs[k], Type: stage.OutputString})
	}
	for _, k := range slices.Sorted(maps.Keys(res.Secrets)) {
		list = append(list, stage.Output{Key: k, Value: res.Secrets[k], Type: stage.OutputSecret})
	}
	return list
}

// poll waits for the answer.
func (s *step) poll(ctx context.Context) (*pollStepResponse, error) {
	if err := await(ctx, s.done); err != nil {
		return nil, err
	}
	return s.answer, nil
}

// end stops the step and returns when no process of it runs.
func (s *step) end(ctx context.Context, cause string) error {
	err := errStopped
	if cause != "" {
		err = errors.New(cause)
	}
	s.stop(err)
	return await(ctx, s.over)
}
