// Package supervise keeps a program running: it starts the program, watches its health, restarts it with pauses, and
// stops it at the end.
//
//	s := supervise.Supervisor{Name: "the sidecar", Start: start, Check: check, Log: log}
//	s.Run(ctx) // returns when nothing of the program runs
//
// Start reading at supervise.go.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// CheckTimeout limits one health check.
const CheckTimeout = 5 * time.Second

// startInterval is the time between the health checks of a program that was just started.
const startInterval = 100 * time.Millisecond

// Instance is one run of a program.
type Instance interface {
	// Exited is closed when the program has ended.
	Exited() <-chan struct{}
	// Stop ends the program and everything that it started, and returns how it ended. Grace is the time between the
	// request to end and the kill.
	Stop(grace time.Duration) string
}

// Supervisor has the rules for one program. Name, Start and Check are required, and all times and numbers but Renew
// must be positive.
type Supervisor struct {
	// Name is the subject of log messages, such as "the sidecar".
	Name string
	// Start starts the program. An error counts as an instance that ended at once.
	Start func(ctx context.Context) (Instance, error)
	// Check returns nil if the program is healthy. Its context ends after CheckTimeout.
	Check func(ctx context.Context) error
	// Changed, if it is not nil, is called when the program becomes healthy, and with the reason when it ends or
	// could not be started.
	Changed func(healthy bool, why error)
	// Renew, if it is not nil, ends the current instance with the reason that it sends. The next one starts at once, unless
	// the instance was healthy for less than the pause: then it counts as one that has ended.
	Renew <-chan error

	// HealthInterval is the time between two checks, HealthFailures the number of failed checks in a row that end an
	// instance, StartTimeout the time until the first successful check.
	HealthInterval time.Duration
	HealthFailures int
	StartTimeout   time.Duration
	// Pause is the time before a restart. It doubles each time, up to MaxPause, until an instance has been healthy
	// for MaxPause.
	Pause, MaxPause time.Duration
	// Grace is how long an instance may take to end before it is killed.
	Grace time.Duration
	Log   zerolog.Logger
}

// errEnded means that the instance has ended by itself. errRenewed wraps the reason of a renewal.
var errEnded = errors.New("ended")

type renewedError struct{ reason error }

func (e *renewedError) Error() string { return e.reason.Error() }

// Run supervises the program until ctx ends. It returns when nothing of the program runs.
func (s *Supervisor) Run(ctx context.Context) {
	pause := s.Pause
	for ctx.Err() == nil {
		healthy, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		s.changed(false, err)
		if healthy >= s.MaxPause {
			pause = s.Pause
		}
		if renewed := (*renewedError)(nil); errors.As(err, &renewed) && healthy >= pause {
			s.Log.Info().Err(err).Msg(s.Name + " is restarted")
			continue
		}
		s.Log.Warn().Err(err).Stringer("again_in", pause).Msg(s.Name + " has ended")
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.Renew: //nolint:errcheck // only that it comes: a change of the configuration may be the cure
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, s.MaxPause)
	}
}

func (s *Supervisor) changed(healthy bool, why error) {
	if s.Changed != nil {
		s.Changed(healthy, why)
	}
}

// once runs one instance. It returns how long the instance was healthy, and the reason for its end.
func (s *Supervisor) once(ctx context.Context) (time.Duration, error) {
	i, err := s.Start(ctx)
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	s.Log.Info().Msg(s.Name + " is started")
	healthy, why := s.watch(ctx, i)
	if healthy > 0 {
		s.changed(false, why) // before the end, which takes time
	}
	ended := i.Stop(s.Grace)
	if errors.Is(why, errEnded) {
		why = fmt.Errorf("it ended by itself: %s", ended)
	}
	return healthy, why
}

// watch returns when the instance has ended or is unhealthy, when it is renewed, or when ctx has ended.
func (s *Supervisor) watch(ctx context.Context, i Instance) (healthy time.Duration, why error) {
	if why = s.awaitHealth(ctx, i); why != nil {
		return 0, why
	}
	s.Log.Info().Msg(s.Name + " is healthy")
	since := time.Now()
	s.changed(true, nil)
	ticker := time.NewTicker(s.HealthInterval)
	defer ticker.Stop()
	for failures := 0; ; {
		select {
		case <-i.Exited():
			return max(1, time.Since(since)), errEnded
		case <-ctx.Done():
			return max(1, time.Since(since)), ctx.Err()
		case reason := <-s.Renew:
			return max(1, time.Since(since)), &renewedError{reason}
		case <-ticker.C:
		}
		err := s.check(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures >= s.HealthFailures {
			return max(1, time.Since(since)), fmt.Errorf("it is not healthy: %w", err)
		}
	}
}

// awaitHealth returns when a started instance is healthy.
func (s *Supervisor) awaitHealth(ctx context.Context, i Instance) error {
	over := time.NewTimer(s.StartTimeout)
	defer over.Stop()
	ticker := time.NewTicker(min(startInterval, s.StartTimeout))
	defer ticker.Stop()
	for {
		err := s.check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-i.Exited():
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case reason := <-s.Renew:
			return &renewedError{reason}
		case <-over.C:
			return fmt.Errorf("it was not healthy within %s: %w", s.StartTimeout, err)
		case <-ticker.C:
		}
	}
}

func (s *Supervisor) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()
	return s.Check(ctx)
}
