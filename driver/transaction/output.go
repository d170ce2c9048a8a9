package transaction

import (
	"context"
	"errors"
	"net/http"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// logTarget is the destination of a step's output. URL and Key are empty if the
// manager names none.
type logTarget struct {
	stage.LogConfig
	Key string
	// Writer identifies the writer of the live stream, so that a step that continues
	// after a restart repeats no lines. Empty means a new identity.
	Writer string `json:",omitempty"`
}

// stream returns the configuration of the stream to the target.
func (t *logTarget) stream() logger.StreamConfig {
	return logger.StreamConfig{
		URL: t.URL, Token: t.Token, Account: t.AccountID, Key: t.Key, Writer: t.Writer,
		IndirectUpload: t.IndirectUpload, TrimNewLineSuffix: t.TrimNewLineSuffix,
		SkipOpeningStream: t.SkipOpeningStream, SkipClosingStream: t.SkipClosingStream,
	}
}

// openTaskLog is the function of [WithLog].
type openTaskLog func(ctx context.Context, target logger.StreamConfig) logger.TaskLog

// sendLogs returns a function that sends output to the log service that the task names
// (docs/protocol.md, section 4). It drops the output if the task names none. All logs
// share hc.
func sendLogs(hc *http.Client) openTaskLog {
	return func(ctx context.Context, target logger.StreamConfig) logger.TaskLog {
		if target.URL == "" || target.Key == "" {
			return discard{}
		}
		target.HTTPClient = hc
		return logger.OpenStream(ctx, target)
	}
}

// logTargetOf returns the log configuration of the payload. If the payload names no log service, it
// returns the configuration of a v2 task, or else the one of the init: foreign managers send an
// empty configuration with each step and mean the init's.
func logTargetOf(t *task.Task, cfg, initConfig *stage.LogConfig, key string) logTarget {
	target := logTarget{Key: key}
	switch {
	case cfg != nil && cfg.URL != "":
		target.LogConfig = *cfg
	case t != nil && t.Logger != nil:
		l := t.Logger
		target.LogConfig = stage.LogConfig{
			AccountID: l.Account, URL: l.Address, Token: l.Token, IndirectUpload: l.IndirectUpload,
			TrimNewLineSuffix: l.TrimNewLineSuffix, SkipOpeningStream: l.SkipOpeningStream,
			SkipClosingStream: l.SkipClosingStream,
		}
		if target.Key == "" {
			target.Key = l.Key
		}
	case initConfig != nil:
		target.LogConfig = *initConfig
	}
	return target
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func (discard) Close(context.Context) error { return nil }

// maskedLog is a masker in front of a log.
type maskedLog struct {
	*secrets.Masker
	log logger.TaskLog
}

// Close flushes the masker, then closes the log.
func (l *maskedLog) Close(ctx context.Context) error {
	return errors.Join(l.Masker.Close(), l.log.Close(ctx))
}
