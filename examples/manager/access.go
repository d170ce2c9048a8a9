package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
)

const (
	// logGrace is how long after its end a stage may still write its logs: its delegate may have been unable to reach
	// the log service.
	logGrace = time.Hour
	// stageEndTimeout bounds the question whether a stage has ended.
	stageEndTimeout = 5 * time.Second
)

// stageEnds is the manager that knows the ends of stages. It is set when the manager is open.
type stageEnds struct {
	atomic.Pointer[manager.Manager]
	now func() time.Time
}

// open reports whether the stage may still write its logs.
func (e *stageEnds) open(account, stage string) bool {
	m := e.Load()
	if m == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), stageEndTimeout)
	defer cancel()
	end, err := m.StageEnd(ctx, account, stage)
	return err == nil && (end.IsZero() || e.now().Sub(end) < logGrace)
}

// authorize allows a stage to write its own logs until a while after its end. A caller with a token for the manager's
// API may access all logs of its account.
func authorize(accounts map[string]string, signer *logservice.Signer, ends *stageEnds) func(logservice.Access) bool {
	return func(a logservice.Access) bool {
		if g, ok := signer.Check(a); ok {
			// The account may have been removed.
			return accounts[a.Account] != "" && (g.Stage == "" || ends.open(a.Account, g.Stage))
		}
		secret, err := token.ParseSecret(accounts[a.Account])
		if err != nil {
			return false
		}
		claims, err := secret.Verify(a.Token, time.Now())
		return err == nil && claims.Account == a.Account && (claims.Role == "" || !a.Write)
	}
}
