package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/imds"
	"github.com/delegate-io/dlite/task/stage"
)

// noticeInterval is the longest time between questions for notices. The notice of EC2 comes two minutes before the end.
const noticeInterval = 5 * time.Second

// interruptedError is the error of a machine that the cloud takes away.
type interruptedError struct{ agent.Interruption }

// interrupted returns the error of a notice, or nil without one. The agent of a machine with a hostile stage may report
// anything.
func interrupted(n *agent.Interruption) error {
	if n == nil {
		return nil
	}
	return &interruptedError{*n}
}

// Error implements error.
func (e *interruptedError) Error() string {
	if e.recommended() {
		return "the cloud recommends to replace the machine"
	}
	if e.At.IsZero() {
		return fmt.Sprintf("the cloud takes the machine away (%.20q)", e.Action)
	}
	return fmt.Sprintf("the cloud takes the machine away (%.20q at %s)", e.Action, e.At.UTC().Format(time.RFC3339))
}

// FailureKind implements the optional method of errors of [driver.Driver].
func (e *interruptedError) FailureKind() string { return stage.FailureDelegateLost }

func (e *interruptedError) recommended() bool { return e.Action == imds.Rebalance }

// isInterrupted returns the notice in an error.
func isInterrupted(err error) (e *interruptedError, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}

// healthInterval returns the time between checks of a machine that is not claimed.
func (p *Pool) healthInterval() time.Duration {
	if p.cfg.Metadata == "" {
		return p.cfg.HealthInterval
	}
	return min(p.cfg.HealthInterval, noticeInterval)
}

// maintainNotices asks the agent of a claimed machine for notices when that is due. The caller holds mu.
func (p *Pool) maintainNotices(s *schedule, m *machine) {
	if p.cfg.Metadata == "" || m.checking || m.reason != nil || !s.due(m.checkedAt.Add(p.healthInterval())) {
		return
	}
	m.checking = true
	rec, gone := m.rec, m.gone
	p.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.HealthTimeout)
		defer cancel()
		notice, found := isInterrupted(p.probe(ctx, rec)) // the link of the claim notices other errors
		p.mu.Lock()
		m.checking, m.checkedAt = false, time.Now()
		mine := found && m.gone == gone
		if mine && notice.recommended() {
			m.retired = true
		}
		p.mu.Unlock()
		if mine && !notice.recommended() {
			p.lost(m, gone, notice)
		}
		p.signal()
	})
}
