package pipeline

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// maxPause bounds the time between tries.
const maxPause = 10 * time.Second

// repeat calls do until it succeeds or ctx ends. It logs each failure as a warning.
func repeat(ctx context.Context, log *zerolog.Logger, message string, do func(context.Context) error) {
	for tries := 1; ctx.Err() == nil; tries++ {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Warn().Err(err).Msg(message)
		pause(ctx, pauseAfter(tries))
	}
}

// pauseAfter returns the pause after a number of tries: 50 ms, doubled each time.
func pauseAfter(tries int) time.Duration {
	return min(maxPause, 50*time.Millisecond<<min(max(tries-1, 0), 12))
}

// pause waits for a time or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
