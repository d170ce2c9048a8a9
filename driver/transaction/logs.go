package transaction

import (
	"context"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/logger"
)

// endLog closes a log. If the log service is away, endLog returns after logWait
// and the log closes later, so that it does not delay the stage;
// closeLogs waits for it. The caller holds a use of the transaction, or its init
// has not ended. If task is not empty, endLog notes that the log of its step is closed.
func (t *transaction) endLog(ctx context.Context, l logger.TaskLog, step, task string) {
	done := make(chan struct{})
	t.closingLogs.Go(func() {
		defer close(done)
		t.closeLog(context.WithoutCancel(ctx), l, step)
		if task != "" {
			t.notes.add(note{Task: task, LogEnded: true})
		}
	})
	wait := time.NewTimer(logWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
		t.log.Debug().Str("step", step).Msg("answering before the log service has the log")
	}
}

// closeLog closes a log and logs if a part of it is lost. step is empty for an
// init or an unknown step.
func (t *transaction) closeLog(ctx context.Context, l logger.TaskLog, step string) {
	defer func() {
		if p := recover(); p != nil { // no caller recovers it
			t.log.Error().Str("step", step).Str("error", fmt.Sprint(p)).Msg("closing a log panicked")
		}
	}()
	if lost := l.Close(ctx); lost != nil {
		t.log.Warn().Str("step", step).Err(lost).Msg("a log is not complete")
	}
}

// keepLog leaves the log of a detached step open until the transaction ends.
func (t *transaction) keepLog(l logger.TaskLog) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, l)
}

// maxLogWait is the longest time for which the answer of a cleanup waits for logs.
const maxLogWait = 10 * time.Second

// closeLogs closes the logs of detached steps and waits for all logs. If the log service
// is away, closeLogs returns after maxLogWait, and [Stages.Close] waits for the logs.
func (t *transaction) closeLogs(ctx context.Context) {
	t.mu.Lock()
	logs := t.logs
	t.logs = nil
	t.mu.Unlock()
	for _, l := range logs {
		t.closingLogs.Go(func() { t.closeLog(ctx, l, "") })
	}
	done := make(chan struct{})
	t.stages.lateLogs.Go(func() {
		defer close(done)
		t.closingLogs.Wait()
	})
	wait := time.NewTimer(maxLogWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
		t.log.Warn().Msg("answering the cleanup before the log service has all logs of the stage")
	}
}
