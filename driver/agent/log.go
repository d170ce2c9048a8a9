package agent

import (
	"context"
	"errors"
	"io"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
)

// stepLog receives a copy of a step's output.
type stepLog interface {
	io.Writer
	Close(ctx context.Context) error
}

// openLog opens the step's log in the log service, if the driver leaves that to the agent. The log
// is masked (rule S3).
func (s *step) openLog() stepLog {
	cfg := s.req.LogConfig
	if cfg == nil || cfg.URL == "" {
		cfg = s.tx.log // drivers of others send an empty configuration with each step
	}
	if s.req.LogDrone || s.req.LogKey == "" || cfg == nil || cfg.URL == "" {
		return noLog{}
	}
	a := s.tx.agent
	stream := logger.OpenStream(s.tx.alive, logger.StreamConfig{
		URL: cfg.URL, Token: cfg.Token, Account: cfg.AccountID, Key: s.req.LogKey, HTTPClient: a.http,
		IndirectUpload: cfg.IndirectUpload, TrimNewLineSuffix: cfg.TrimNewLineSuffix,
		SkipOpeningStream: cfg.SkipOpeningStream, SkipClosingStream: cfg.SkipClosingStream,
		TempDir: a.cfg.TempDir,
	})
	return &maskedLog{Masker: secrets.NewMasker(stream, s.tx.masks), stream: stream}
}

// closeLog sends the rest of the log. The answer waits for it, because the machine may disappear
// soon after.
func (s *step) closeLog(l stepLog) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.tx.agent.cfg.ReportTimeout)
	defer cancel()
	if lost := l.Close(ctx); lost != nil {
		s.tx.agent.cfg.Log.Warn().Str("step", s.req.ID).Str("error", s.tx.masks.Mask(lost.Error())).Msg("a step's log is incomplete")
	}
}

type noLog struct{}

func (noLog) Write(p []byte) (int, error) { return len(p), nil }

func (noLog) Close(context.Context) error { return nil }

type maskedLog struct {
	*secrets.Masker
	stream *logger.Stream
}

// Close flushes the masker, then closes the stream.
func (l *maskedLog) Close(ctx context.Context) error {
	return errors.Join(l.Masker.Close(), l.stream.Close(ctx))
}
