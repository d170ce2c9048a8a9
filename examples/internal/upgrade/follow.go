package upgrade

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	followEvery = 200 * time.Millisecond
	// takenUpWithin is how long a running program takes to notice an upgrade.
	takenUpWithin = 10 * time.Second
)

// ErrWaiting means that no running process has taken the upgrade up.
var ErrWaiting = errors.New("no running process has taken the upgrade up")

// Follow calls report for each phase of the upgrade of the running program until it has ended. It returns an error if
// the upgrade failed, or ErrWaiting.
func Follow(ctx context.Context, version string, report func(phase string)) error {
	p, err := ownPlace()
	if err != nil {
		return err
	}
	return p.follow(ctx, version, report)
}

// FollowService is Follow for the upgrade of a service that keeps its program in its state directory. File is the program
// that the service manager starts.
func FollowService(ctx context.Context, state, file, version string, report func(phase string)) error {
	return inState(state, file).follow(ctx, version, report)
}

func (p place) follow(ctx context.Context, version string, report func(phase string)) error {
	look := time.NewTicker(followEvery)
	defer look.Stop()
	waiting, phase := time.After(takenUpWithin), Staged
	for {
		j, err := p.read()
		switch {
		case err != nil:
			return err
		case j == nil || j.Version != version:
			return errors.New("another upgrade has taken the place of this one")
		case j.Phase != phase:
			phase = j.Phase
			report(phase)
		}
		switch phase {
		case Done:
			return nil
		case Failed:
			return fmt.Errorf("%s stays: %s %s", j.From, j.Version, j.Reason)
		case Staged:
		default:
			waiting = nil
		}
		select {
		case <-look.C:
		case <-waiting:
			return ErrWaiting
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
