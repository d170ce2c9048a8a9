package machine

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// drain bounds the time that the stages have to clean up after the end of a run.
const drain = 10 * time.Minute

// Viewer shows the progress of a run.
type Viewer interface {
	// Note shows a message of the program.
	Note(format string, args ...any)
	// Follow shows the progress of a run until it has ended, and returns it.
	Follow(ctx context.Context, m *Machine, id string) (api.Run, error)
}

// Run runs a pipeline on a new machine in a temporary directory, shows its progress, and removes
// everything. Config.Dir must be empty. The first signal aborts the run: its delegate ends the steps and cleans
// up. The second one ends the delegate at once. An aborted run is not an error.
func Run(ctx context.Context, cfg Config, req api.RunRequest, v Viewer, signals <-chan os.Signal) (run api.Run, err error) {
	if cfg.Dir, err = os.MkdirTemp("", "dlite-pipelines-"); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	m, err := Start(ctx, cfg)
	if err != nil {
		return run, err
	}
	following, now := context.WithCancel(ctx)
	defer now()
	defer func() {
		closing, cancel := context.WithTimeout(ctx, drain)
		defer cancel()
		if following.Err() != nil {
			cancel()
		}
		err = errors.Join(err, m.Close(closing))
	}()
	started, err := m.Pipelines.Start(ctx, Account, req)
	if err != nil {
		return run, err
	}
	stop := m.abortOn(following, started.ID, v, signals, now)
	defer stop()
	run, err = v.Follow(following, m, started.ID)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		started.Status, started.Reason = "ABORTED", "interrupted twice"
		return started, nil
	}
	return run, err
}

// abortOn aborts the run at the first signal, and calls now at the second.
func (m *Machine) abortOn(ctx context.Context, id string, v Viewer, signals <-chan os.Signal, now func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if n > 1 {
				v.Note("interrupted again: ending at once")
				now()
				return
			}
			v.Note("interrupted: aborting the run; interrupt again to end at once")
			if _, err := m.Pipelines.Abort(ctx, Account, id, api.Order{Reason: "interrupted"}); err != nil {
				v.Note("%v", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Succeeded reports whether a run ended well.
func Succeeded(r api.Run) bool { return r.Status == "SUCCEEDED" || r.Status == "IGNORE_FAILED" }
