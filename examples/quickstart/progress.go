package main

import (
	"context"
	"os"
	"sync"

	"github.com/delegate-io/dlite/manager"
)

// runPipeline runs the stages one after the other until one does not succeed. It prints their progress and results.
func runPipeline(ctx context.Context, p pipeline, s *server, t *terminal, signals <-chan os.Signal) (bool, error) {
	ok := true
	var ended []manager.Stage
	for _, st := range p.Stages {
		if interrupted(signals) {
			t.note("interrupted before stage %q", st.Name)
			ok = false
			break
		}
		req, err := st.request()
		if err != nil {
			return false, err
		}
		result, interrupted, err := runStage(ctx, req, s, t, signals)
		if err != nil {
			return false, err
		}
		ended = append(ended, result)
		if ok = result.Status == manager.Success && !interrupted; !ok {
			break
		}
	}
	t.summary(p, ended)
	return ok, nil
}

// interrupted takes a signal that has already arrived. A further signal is for the drain.
func interrupted(signals <-chan os.Signal) bool {
	select {
	case <-signals:
		return true
	default:
		return false
	}
}

// runStage runs a stage to its end. The first signal lets it finish, the second
// one aborts it.
func runStage(ctx context.Context, req manager.StageRequest, s *server, t *terminal, signals <-chan os.Signal) (result manager.Stage, interrupted bool, err error) {
	submitted, err := s.manager.SubmitStage(ctx, account, req)
	if err != nil {
		return result, false, err
	}
	t.stage(submitted.Name)
	tailing, stop := context.WithCancel(ctx)
	defer stop()
	var tails sync.WaitGroup
	tails.Go(func() { // steps run one after the other, and so do their logs
		for _, step := range submitted.Steps {
			for line := range s.logs.Tail(tailing, account, step.LogKey) {
				t.line(step.Name, line.Out)
			}
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = s.manager.WaitStage(ctx, account, submitted.ID)
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-signals:
			if !interrupted {
				t.note("interrupted: finishing stage %q; interrupt again to abort it", submitted.Name)
				interrupted = true
				continue
			}
			t.note("aborting stage %q", submitted.Name)
			if _, err := s.manager.AbortStage(ctx, account, submitted.ID); err != nil {
				t.note("%v", err)
			}
		}
	}
	if err == nil && result.Status == manager.Success {
		tails.Wait() // every step ran, so every log ends
	}
	stop()
	tails.Wait()
	return result, interrupted, err
}
