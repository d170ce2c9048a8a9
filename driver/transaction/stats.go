package transaction

import (
	"context"
	"sync/atomic"

	"github.com/delegate-io/dlite/logger"
)

// Stats holds counts since the stages were made.
type Stats struct {
	// Open is the current number of transactions between init and cleanup.
	Open int
	// LogBytes counts the masked output of inits and steps, in bytes.
	LogBytes int64
	// LogsIncomplete counts logs of which a part is lost or may be lost.
	LogsIncomplete int64
}

// Stats returns the counts. It may be called at any time.
func (s *Stages) Stats() Stats {
	return Stats{Open: s.Open(), LogBytes: s.counters.logBytes.Load(), LogsIncomplete: s.counters.logsIncomplete.Load()}
}

type counters struct{ logBytes, logsIncomplete atomic.Int64 }

// count wraps open so that its logs are counted.
func (c *counters) count(open openTaskLog) openTaskLog {
	return func(ctx context.Context, target logger.StreamConfig) logger.TaskLog {
		return &countedLog{TaskLog: open(ctx, target), counters: c}
	}
}

// countedLog counts the bytes and the failure of a log.
type countedLog struct {
	logger.TaskLog
	counters *counters
}

// Write implements [logger.TaskLog].
func (l *countedLog) Write(b []byte) (int, error) {
	n, err := l.TaskLog.Write(b)
	l.counters.logBytes.Add(int64(n))
	return n, err
}

// Close implements [logger.TaskLog].
func (l *countedLog) Close(ctx context.Context) error {
	err := l.TaskLog.Close(ctx)
	if err != nil {
		l.counters.logsIncomplete.Add(1)
	}
	return err
}
