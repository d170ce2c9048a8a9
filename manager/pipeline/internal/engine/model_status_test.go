package engine

import (
	"slices"
	"strings"
)

func (m *model) end(n *modelNode, status Status, leaf bool) {
	n.status, n.leaf = status, leaf
	m.rolled = m.rolled || n.kind == StageNode && n.stopped
}

// halted reports whether a container starts nothing more.
func (m *model) halted(c *modelNode) bool {
	if m.aborted {
		return true
	}
	for p := c; p != nil; p = p.parent {
		if p.stopped || p.again || p.expired {
			return true
		}
		if p.kind == StageNode {
			return false
		}
	}
	return m.stop
}

// expired reports whether the time-out of a group around n, or of n, is over.
func (m *model) expired(n *modelNode) bool {
	for p := n; p != nil && p.kind != StageNode; p = p.parent {
		if p.expired {
			return true
		}
	}
	return false
}

// outcome is the status of a container whose children have ended.
func (m *model) outcome(n *modelNode) Status {
	if m.expired(n) {
		return Expired
	}
	return m.aggregate(n)
}

// expire ends a group before its time: what waits for a retry ends at once, and a step when the manager says so.
func (m *model) expire(n *modelNode) {
	n.expired = true
	inside := func(path string) bool { return strings.HasPrefix(path, n.path+".") }
	for path := range m.results {
		m.late[path] = m.late[path] || inside(path)
	}
	for path := range m.timers {
		if end := m.waits[path]; end != nil && inside(path) {
			delete(m.timers, path)
			end()
		}
	}
}

// find returns the node below c that was started last at a path, or nil.
func find(c *modelNode, path string) (found *modelNode) {
	if c.path == path {
		found = c
	}
	for _, child := range c.children {
		if n := find(child, path); n != nil {
			found = n
		}
	}
	return found
}

// abort ends what only waits. The rest ends when the manager says so.
func (m *model) abort() {
	m.aborted = true
	for path := range m.timers {
		if end := m.paused[path]; end != nil {
			end()
		}
		delete(m.timers, path)
	}
}

// below returns the final statuses below c, without those inside of strategies.
func below(c *modelNode, inside bool) []Status {
	var all []Status
	for _, n := range c.children {
		switch {
		case n.status.Ended() && n.leaf:
			all = append(all, n.status)
		case n.kind == GroupNode:
			all = append(all, below(n, inside)...)
		}
	}
	return all
}

// seen returns the status of the stage as n sees it.
func (m *model) seen(n *modelNode) Status {
	var all []Status
	for p := n.parent; p != nil && p.kind != PipelineNode; p = p.parent {
		if p.kind != StrategyNode {
			all = append(all, below(p, false)...)
		}
		if p.kind == StageNode {
			break
		}
	}
	return combine(all)
}

func (m *model) overall() Status { return combine(below(m.root, false)) }

func (m *model) aggregate(c *modelNode) Status {
	if m.aborted {
		return Aborted
	}
	return combine(below(c, true))
}

func combine(all []Status) Status {
	for _, s := range []Status{Aborted, Failed, ApprovalRejected, Expired, IgnoreFailed} {
		if slices.Contains(all, s) {
			return s
		}
	}
	return Succeeded
}
