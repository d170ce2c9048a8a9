package transaction

import (
	"context"
	"sync/atomic"
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
func (m *Stages) Stats() Stats {
	return Stats{Open: m.Open(), LogBytes: m.counters.logBytes.Load(), LogsIncomplete: m.counters.logsIncomplete.Load()}
}

type counters struct{ logBytes, logsIncomplete atomic.Int64 }

// count wraps open so that its logs are counted.
func (c *counters) count(open OpenLog) OpenLog {
	return func(ctx context.Context, target LogTarget) Log {
		return &countedLog{Log: open(ctx, target), counters: c}
	}
}

// countedLog counts the bytes and the failure of a log.
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
