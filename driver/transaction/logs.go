package transaction

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delegate-io/dlite/logger"
)

// endLog closes a log. While the log service is away, which must not hold up a
// stage for long, the caller goes on after a while, and the log ends behind it:
// closeLogs waits for it. It is called while the transaction is not quiet, or not
// ready.
func (t *transaction) endLog(ctx context.Context, l Log, step string) {
	done := make(chan struct{})
	t.ending.Go(func() {
		defer close(done)
		t.closeLog(context.WithoutCancel(ctx), l, step)
	})
	wait := time.NewTimer(t.stages.logWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
		t.log.Debug().Str(logger.FieldStep, step).Msg("answering before the log has arrived")
	}
}

// closeLog closes a log and says when it is not complete. Step is empty where it is
// not known or an init's.
func (t *transaction) closeLog(ctx context.Context, l Log, step string) {
	defer func() {
		if p := recover(); p != nil { // nobody above us would stop it
			t.log.Error().Str(logger.FieldStep, step).Str("error", fmt.Sprint(p)).Msg("closing a log panicked")
		}
	}()
	if lost := l.Close(ctx); lost != nil {
		t.log.Warn().Str(logger.FieldStep, step).Err(lost).Msg("a log is not complete")
	}
}

// keepLog leaves a detached step's log open until the transaction ends.
func (t *transaction) keepLog(l Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, l)
}

// closeLogs closes the logs that were kept, and waits for those that end.
func (t *transaction) closeLogs(ctx context.Context) {
	t.mu.Lock()
	logs := t.logs
	t.logs = nil
	t.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range logs {
		wg.Go(func() { t.closeLog(ctx, l, "") })
	}
	wg.Wait()
	t.ending.Wait()
}
