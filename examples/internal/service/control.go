package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Status returns the state of the service: from the running process, or else from the service manager.
func (s Service) Status(ctx context.Context) (Status, error) {
	paths, err := s.Paths()
	if err != nil {
		return Status{}, err
	}
	answer, err := Read(ctx, paths.Socket())
	if err == nil {
		answer.Service = s.Name
		return *answer, nil
	}
	st := Status{Service: s.Name, Program: s.Program}
	known, stateErr := s.state(ctx)
	if stateErr != nil {
		return st, stateErr
	}
	st.State = known
	if errors.Is(err, fs.ErrPermission) && known != Stopped && known != Missing {
		st.Message = "only root and the user of the service can read more: use sudo"
		return st, nil
	}
	if known == Running || known == Draining {
		st.State, st.Message = Silent, err.Error()
	}
	return st, nil
}

// Restart restarts the service. It waits until the old process has drained, and until the new one works, at most for
// wait. Out gets a line for each change.
func (s Service) Restart(ctx context.Context, wait time.Duration, out io.Writer) error {
	return s.follow(ctx, out, func() error { return s.begin(ctx, true) }, func() error { return s.awaitRunning(ctx, wait, out) })
}

// Start starts the service, and waits until it works, at most for wait.
func (s Service) Start(ctx context.Context, wait time.Duration, out io.Writer) error {
	if err := s.begin(ctx, false); err != nil {
		return err
	}
	return s.awaitRunning(ctx, wait, out)
}

// Stop stops the service and waits until it has drained.
func (s Service) Stop(ctx context.Context, out io.Writer) error {
	return s.follow(ctx, out, func() error { return s.halt(ctx) }, func() error {
		_, _ = fmt.Fprintf(out, "%s has stopped\n", s.Name)
		return nil
	})
}

// follow prints what a program that drains waits for, while act runs, and then calls after.
func (s Service) follow(ctx context.Context, out io.Writer, act, after func() error) error {
	paths, err := s.Paths()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- act() }()
	last := ""
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			return after()
		case <-time.After(steadyTick):
		}
		if st, err := Read(ctx, paths.Socket()); err == nil && st.State == Draining {
			if text := describe(*st); text != last {
				last = text
				_, _ = fmt.Fprintf(out, "%s: %s\n", s.Name, text)
			}
		}
	}
}

// awaitRunning waits until the program works.
func (s Service) awaitRunning(ctx context.Context, wait time.Duration, out io.Writer) error {
	if wait <= 0 {
		return nil
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var last Status
	for {
		st, err := s.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return s.notRunning(last, wait)
		case err != nil:
			return err
		case st.State == Running:
			_, _ = fmt.Fprintf(out, "%s runs after %.1f s: %s\n", s.Name, time.Since(begin).Seconds(), describe(st))
			return nil
		case st.State == Failed, st.State == Missing:
			return s.notRunning(st, wait)
		}
		last = st
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
	}
}

func (s Service) notRunning(st Status, wait time.Duration) error {
	text := fmt.Sprintf("%s does not work yet after %s: it is %s", s.Name, wait, st.State)
	if st.State == Failed {
		text = s.Name + " has failed"
	}
	if st.Message != "" {
		text += " (" + st.Message + ")"
	}
	return errors.New(text + ": its log has the reason: " + s.logAdvice())
}
