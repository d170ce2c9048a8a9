package upgrade

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rs/zerolog"
)

// Loop keeps a serving program up to date.
type Loop struct {
	Config
	// Every is the interval of the checks, give or take a tenth. Zero makes none: the loop then takes up only upgrades
	// that the command of the program has staged.
	Every time.Duration
	Fleet *Fleet // nil without a manager
	// Leave returns when this process may be replaced. After an error the process continues as before.
	Leave func(ctx context.Context, version string) error
	// Stop ends this process, which has left and could not be replaced.
	Stop func()
	// Urgent, if it is closed, makes the first check at once and the others soon: the manager accepts another version alone.
	Urgent <-chan struct{}
	Log    zerolog.Logger

	gaveUp string // the version whose failures have been logged
}

const (
	watchEvery  = 2 * time.Second
	urgentEvery = 30 * time.Second
	// maxFailures is how often the periodic check tries a version that fails.
	maxFailures = 3
)

// Run checks until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	p, err := ownPlace()
	if err == nil && p.fixed != "" {
		err = os.MkdirAll(p.dir(), 0o755)
	}
	if err != nil || !p.writable() {
		if l.Every > 0 {
			l.Log.Warn().Str("directory", p.dir()).Msg("the delegate is not kept up to date: its user may not write to the directory of the program")
		}
		return
	}
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	check, urgent := l.next(true), l.Urgent
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch.C:
			l.replaceProcess(ctx, p)
		case <-urgent:
			urgent, l.Every = nil, min(l.Every, urgentEvery)
			check = time.After(0)
		case <-check:
			if err := l.check(ctx, p); err != nil && ctx.Err() == nil {
				l.Log.Warn().Err(err).Msg("cannot check for an upgrade")
			}
			check = l.next(false)
		}
	}
}

// next returns the channel of the next check. The first one is early, and checks of a fleet spread.
func (l *Loop) next(first bool) <-chan time.Time {
	switch {
	case l.Every == 0:
		return nil
	case first:
		return time.After(rand.N(min(l.Every, urgentEvery)))
	}
	return time.After(l.Every - l.Every/10 + rand.N(l.Every/5+1))
}

// replaceProcess replaces this process if an upgrade is staged, or if another process has replaced the program.
func (l *Loop) replaceProcess(ctx context.Context, p place) {
	j, err := p.read()
	if err != nil || j == nil {
		return
	}
	replaced := j.Phase == Done && j.From == l.Current && j.Version != l.Current
	if j.Phase != Staged && !replaced {
		return
	}
	l.Log.Info().Str("version", j.Version).Msg("an upgrade is ready: finishing what cannot be handed over")
	if l.Leave(ctx, j.Version) != nil {
		return
	}
	step("left")
	if replaced {
		err = p.exec()
	} else {
		err = p.again()
	}
	l.Log.Error().Err(err).Msg("cannot start the program again: stopping")
	l.Stop()
}

// check finds out which version is wanted, and stages it.
func (l *Loop) check(ctx context.Context, p place) error {
	j, err := p.read()
	if err != nil {
		return err
	}
	if j != nil && !j.final() {
		return nil // it is being taken up
	}
	version, report, err := l.wanted(ctx, p, j)
	if err != nil || version == "" {
		return err
	}
	if report == "" && j != nil && j.Version == version && j.Phase == Failed && j.Failures >= maxFailures {
		if l.gaveUp != version {
			l.Log.Warn().Str("version", version).Str("reason", j.Reason).Msg("the upgrade has failed too often and is not tried again: correct the cause, and run the command upgrade")
		}
		l.gaveUp = version
		return nil
	}
	_, err = fetch(ctx, p, l.Config, version, false, report)
	switch {
	case err == nil:
		l.Log.Info().Str("version", version).Msg("an upgrade is verified and staged")
	case errors.Is(err, ErrBusy):
		return nil
	case report != "" && ctx.Err() == nil:
		_, askErr := l.Fleet.ask(ctx, l.Current, version, err.Error())
		err = errors.Join(err, askErr)
	}
	return err
}

// wanted returns the version to upgrade to, or an empty string. It first delivers the outcome of the last upgrade.
func (l *Loop) wanted(ctx context.Context, p place, j *Journal) (version, report string, err error) {
	if l.Fleet != nil {
		var a *Answer
		if j != nil && j.Report != "" && j.Phase == Failed {
			a, err = l.Fleet.ask(ctx, l.Current, j.Version, j.Reason)
		} else {
			a, err = l.Fleet.ask(ctx, l.Current, "", "") // the version is the outcome
		}
		if err != nil {
			return "", "", err
		}
		if j != nil && j.Report != "" {
			j.Report = ""
			if err := p.write(j); err != nil {
				return "", "", err
			}
		}
		switch {
		case a == nil || a.Version == "":
		case a.Version == l.Current:
			return "", "", nil
		case !a.Granted:
			l.Log.Debug().Str("version", a.Version).Str("reason", a.Reason).Msg("the upgrade has to wait")
			return "", "", nil
		default:
			return a.Version, l.Fleet.ID, nil
		}
	}
	stable, err := Stable(ctx, l.Config)
	if err != nil || !Older(l.Current, stable) {
		return "", "", err
	}
	return stable, "", nil
}
