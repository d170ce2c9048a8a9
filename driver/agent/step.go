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
	ctx  context.Context //nolint:containedctx // a life, and not a call's: ends when the step has to

	over   chan struct{}     // closed when the driver is done with it
	done   chan struct{}     // closed when answer is there
	answer *PollStepResponse // before done
}

func newStep(t *transaction, req *StartStepRequest) *step {
	s := &step{
		tx: t, req: req, over: make(chan struct{}), done: make(chan struct{}),
		out: newOutput(t.agent.cfg.TempDir, t.agent.cfg.MaxMemory),
	}
	s.ctx, s.stop = context.WithCancelCause(t.alive)
	return s
}

// errStopped is why a step ends that was asked to, unless a cause was given.
var errStopped = errors.New("the step was stopped")

// run executes the step and everything that belongs to its end.
func (s *step) run() {
	t := s.tx
	t.masks.Add(s.req.Secrets...)
	if s.req.Auth != nil {
		t.masks.Add(s.req.Auth.Password) // registries' words come back as errors
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
		// Its log goes on until the stage is destroyed, which ends the output.
		<-s.out.over
		s.closeLog(log)
	}
}

// tee writes to both. A log that fails takes nothing away from who reads here.
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
		Conceal: s.req.Conceal || slices.ContainsFunc(s.req.Run.Entrypoint, shows) || slices.ContainsFunc(s.req.Run.Command, shows),
	}
	err = guard("execution", func() error {
		res, err = t.agent.driver.Execute(s.ctx, t.environment(s.req.StageRuntimeID), step, out, &t.ledger)
		return err
	})
	if err == nil && res == nil {
		err = errors.New("the driver has no result")
	}
	if err == nil {
		return res, nil
	}
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause) // why it was stopped
	}
	return nil, err
}

// internalError is the exit code of what is not a process's end (PROTOCOL 5).
const internalError = 255

// newAnswer says how the step ended in the protocol's words and in ours.
func (s *step) newAnswer(res *driver.Result, err error) *PollStepResponse {
	a := &PollStepResponse{Result: res, Length: s.out.length()}
	switch {
	case err != nil:
		text := s.tx.masks.Mask(err.Error())
		a.Exited, a.ExitCode, a.Error = true, internalError, text
		a.Failure = &Failure{Error: text, Timeout: errors.Is(err, context.DeadlineExceeded), Stopped: s.ctx.Err() != nil}
		if a.Failure.Timeout {
			a.Error = context.DeadlineExceeded.Error()
		}
		return a
	case res.Detached:
		a.Length = 0
		return a
	}
	a.Exited, a.ExitCode, a.OOMKilled = true, res.ExitCode, res.OOMKilled
	// Drivers of others tell a failure by its error, and not by the exit code.
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

// outputs lists what a step hands on, secrets last.
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
func (s *step) poll(ctx context.Context) (*PollStepResponse, error) {
	if err := await(ctx, s.done); err != nil {
		return nil, err
	}
	return s.answer, nil
}

// end stops the step and returns when nothing of it runs.
func (s *step) end(ctx context.Context, cause string) error {
	err := errStopped
	if cause != "" {
		err = errors.New(cause)
	}
	s.stop(err)
	return await(ctx, s.over)
}
