package pipeline

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

var _ Logs = (*Remote)(nil)

// logSilence ends the reading of a log without an end, for example of a lost delegate, when no more lines come.
const logSilence = 2 * time.Second

// Lines reads a log of the log service at the address of the manager, as [Logs] describes it.
func (r *Remote) Lines(ctx context.Context, account, key string, from int64, follow bool) iter.Seq2[logger.Line, error] {
	return func(yield func(logger.Line, error) bool) {
		a := r.accounts[account]
		if a == nil {
			yield(logger.Line{}, fmt.Errorf("%w: the settings have no account %q", manager.ErrUnavailable, account))
			return
		}
		var err error
		if follow {
			err = passLines(a.client.FollowLog(ctx, key, from), from, yield)
		} else if err = passLines(a.client.Log(ctx, key), from, yield); api.IsStatus(err, http.StatusNotFound) { // it is not complete
			err = passExisting(ctx, a.client, key, from, yield)
		}
		if err != nil && ctx.Err() == nil {
			yield(logger.Line{}, err)
		}
	}
}

// passLines passes lines on, from a number, and returns the first error.
func passLines(lines iter.Seq2[api.LogLine, error], from int64, yield func(logger.Line, error) bool) error {
	for l, err := range lines {
		if err != nil {
			return err
		}
		if l.Pos < from {
			continue
		}
		if !yield(logger.Line{Level: l.Level, Pos: l.Pos, Out: l.Text, Time: l.Time, Args: l.Args}, nil) {
			return nil
		}
	}
	return nil
}

// passExisting passes the lines of a live log on that exist. A log that does not exist has none.
func passExisting(ctx context.Context, client *api.Client, key string, from int64, yield func(logger.Line, error) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(logSilence, cancel)
	defer silence.Stop()
	err := passLines(client.FollowLog(ctx, key, from), from, func(l logger.Line, err error) bool {
		silence.Stop() // while the caller handles the line
		defer silence.Reset(logSilence)
		return yield(l, err)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
