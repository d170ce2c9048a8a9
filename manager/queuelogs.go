package manager

import (
	"context"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
	"github.com/delegate-io/dlite/task/stage"
)

// A waiting stage reports its place in the log of its init (rule Q5). If several
// managers share a store, only the leader writes these lines. Otherwise each line
// would appear once per manager.

// leader names the leading manager and the end of its term.
type leader struct {
	ID    string    `json:"id,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// leaderTerm is how long a manager leads without renewal. It renews after half of
// that time.
const leaderTerm = 10 * time.Second

// renewLeadership makes this manager the leader if there is none, and renews its
// term. It reports false if the store failed.
func (m *Manager) renewLeadership(ctx context.Context) bool {
	if !m.shared() {
		return true
	}
	if m.journal.Now().Before(m.nextRenewal()) {
		return true
	}
	led := m.isLeader()
	_, err := m.applyCommand(ctx, &command{Lead: &idCommand{m.id}})
	if err == nil && !led && m.isLeader() {
		m.writeAllQueueLogs()
	}
	return err == nil
}

// nextRenewal returns when renewLeadership has to run next.
func (m *Manager) nextRenewal() time.Time {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	l := m.core.leader
	if l.ID == m.id {
		return l.Until.Add(-leaderTerm / 2)
	}
	return l.Until
}

func (c *core) setLeader(id string) {
	if c.leader.ID == id || !c.at.Before(c.leader.Until) {
		c.leader = leader{ID: id, Until: c.at.Add(leaderTerm)}
	}
}

// isLeader reports whether this manager leads.
func (m *Manager) isLeader() bool {
	if !m.shared() {
		return true
	}
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return m.core.leader.ID == m.id
}

func (m *Manager) shared() bool { return m.cfg.Store != nil && m.cfg.Store.Shared() }

// updateQueueLog makes the leader write the current state of a stage into the log of
// its init.
func (c *core) updateQueueLog(n *run) {
	if n.log == nil {
		return
	}
	k := key{n.account, n.ID}
	c.addEffect(func(m *Manager) {
		if m.isLeader() {
			m.writeQueueLog(k)
		}
	})
}

func (m *Manager) writeQueueLog(k key) {
	// The settings may have changed since the submission.
	if log, logKey, s, ok := m.core.queueLogState(k); ok && m.mayWriteLog(k.account, k.id, log) {
		m.queueLogs.Tell(k.account, k.id, log, logKey, s)
	}
}

// writeAllQueueLogs writes the state of all waiting stages.
func (m *Manager) writeAllQueueLogs() {
	m.core.mu.Lock()
	var waiting []key
	for k, n := range m.core.stages {
		if n.log != nil && n.Status == api.Queued {
			waiting = append(waiting, k)
		}
	}
	m.core.mu.Unlock()
	for _, k := range waiting {
		m.writeQueueLog(k)
	}
}

// queueLogState returns the state that the log of a stage's init reports.
func (c *core) queueLogState(k key) (log *stage.LogConfig, logKey string, s queuelog.State, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.stages[k]
	if n == nil || n.log == nil {
		return nil, "", s, false
	}
	s = queuelog.State{Status: string(n.init.Status), Since: n.Trace.Since, Reason: n.init.Error}
	if n.init.Status == api.Queued {
		p, _ := c.queue.Place(n.account, n.ID) // the stage exists
		s.Place, s.Reason = p.Number, p.Reason
	}
	if n.DelegateID != "" {
		s.Delegate = c.queue.Label(n.account, n.DelegateID)
	}
	return n.log, n.init.LogKey, s, true
}

// currentQueueLogState returns the current state for the writer of queue logs.
func (m *Manager) currentQueueLogState(account, id string) (queuelog.State, bool) {
	_, _, s, ok := m.core.queueLogState(key{account, id})
	return s, ok && m.isLeader()
}
