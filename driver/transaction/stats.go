package transaction

import (
	"context"
	"sync/atomic"
)

// Stats counts what a manager's transactions have done since it was made.
type Stats struct {
	// Open counts the transactions between init and cleanup now.
	Open int
	// LogBytes counts the output of inits and steps, masked, as it went to their
	// logs.
	LogBytes int64
	// LogsIncomplete counts the logs of which a part was lost, or may have been.
	LogsIncomplete int64
}

// Stats returns the counts. It may be called at any time.
func (m *Stages) Stats() Stats {
	return Stats{Open: m.Open(), LogBytes: m.counters.logBytes.Load(), LogsIncomplete: m.counters.logsIncomplete.Load()}
}

type counters struct{ logBytes, logsIncomplete atomic.Int64 }

// count makes the logs that open opens count.
func (c *counters) count(open OpenLog) OpenLog {
	return func(ctx context.Context, target LogTarget) Log {
		return &countedLog{Log: open(ctx, target), counters: c}
	}
}

// countedLog counts what goes into a log.
type countedLog struct {
	Log
	counters *counters
}

// Write implements [Log].
func (l *countedLog) Write(b []byte) (int, error) {
	n, err := l.Log.Write(b)
	l.counters.logBytes.Add(int64(n))
	return n, err
}

// Close implements [Log].
func (l *countedLog) Close(ctx context.Context) error {
	err := l.Log.Close(ctx)
	if err != nil {
		l.counters.logsIncomplete.Add(1)
	}
	return err
}
