package engine

import (
	"slices"
	"strings"
)

// again runs a stage that is held again from a node below it. It reports false if that is not possible.
func (m *model) again(n *modelNode) bool {
	c := n.parent
	first := slices.IndexFunc(c.items, func(item []*modelNode) bool {
		return slices.ContainsFunc(item, func(d *modelNode) bool { return d.id == n.id })
	})
	if c.kind == StrategyNode || c.status.Ended() || m.halted(c) || !m.holds(n) {
		return false
	}
	repeat := map[string]bool{}
	for _, other := range c.children {
		at := slices.IndexFunc(c.items, func(item []*modelNode) bool {
			return slices.ContainsFunc(item, func(d *modelNode) bool { return d.id == other.id })
		})
		ended := other.status.Positive() || other.up
		if at < first || at == first && other != n && (ended || m.busy(other)) {
			continue
		}
		if m.busy(other) {
			return false
		}
		repeat[other.id] = true
	}
	c.left, c.rest = 0, c.items[first+1:]
	c.children = slices.DeleteFunc(c.children, func(other *modelNode) bool {
		if repeat[other.id] {
			m.forget(other)
			return true
		}
		if !other.status.Ended() && !other.up {
			c.left++
		}
		return false
	})
	var begin []*modelNode
	for _, d := range c.items[first] {
		if repeat[d.id] {
			begin = append(begin, d)
		}
	}
	c.left += len(begin)
	for _, d := range begin {
		m.begin(c, d, func() { m.leave(c) })
	}
	return true
}

// holds reports whether a step of the stage of n waits for a person.
func (m *model) holds(n *modelNode) bool {
	stage := n
	for stage.kind != StageNode || stage.parent.kind != PipelineNode && stage.parent.kind != StrategyNode {
		stage = stage.parent
	}
	for path := range m.held {
		if strings.HasPrefix(path, stage.path+".") {
			return !m.aborted
		}
	}
	return false
}

// busy reports whether the manager has a step at or below n, except a background step that has started.
func (m *model) busy(n *modelNode) bool {
	return n.kind == StepNode && m.results[n.path] != nil || slices.ContainsFunc(n.children, m.busy)
}

// forget removes what would happen to n and the nodes below it.
func (m *model) forget(n *modelNode) {
	delete(m.timers, n.path)
	delete(m.timers, n.path+" timeout")
	delete(m.waits, n.path)
	delete(m.held, n.path)
	for _, child := range n.children {
		m.forget(child)
	}
}

// later continues a container after the events of this moment, unless it has ended.
func (m *model) later(c *modelNode, f func()) {
	m.ready = append(m.ready, func() {
		if !c.status.Ended() {
			f()
		}
	})
}

// settle continues until nothing can.
func (m *model) settle() {
	for len(m.ready) > 0 {
		f := m.ready[0]
		m.ready = m.ready[1:]
		f()
	}
}

// retry runs an ended run again from a stage.
func (m *model) retry(id string) {
	var first int
	again := map[string]bool{id: true}
	for i, item := range m.root.items {
		for _, d := range item {
			if d.id == id {
				first = i
			}
			for _, on := range d.depends { // items are in the order of their dependencies
				again[d.id] = again[d.id] || again[on]
			}
		}
	}
	place := map[string]int{}
	for i, item := range m.root.items {
		for _, d := range item {
			place[d.id] = i
		}
	}
	kept := map[string]bool{}
	m.root.children = slices.DeleteFunc(m.root.children, func(n *modelNode) bool {
		bad := !n.status.Positive() || n.blocked
		if m.graph {
			kept[n.id] = !again[n.id] && !bad
		} else {
			kept[n.id] = place[n.id] < first || place[n.id] == first && n.id != id && !bad
		}
		return !kept[n.id]
	})
	m.aborted, m.stop, m.rolled, m.root.status = false, false, false, Running
	for _, n := range m.root.children {
		m.rolled = m.rolled || n.stopped
		for _, child := range n.children {
			m.rolled = m.rolled || child.kind == StageNode && child.stopped
		}
	}
	if m.graph {
		m.dag(kept)
		return
	}
	items := slices.Clone(m.root.items[first:])
	items[0] = slices.DeleteFunc(slices.Clone(items[0]), func(d *modelNode) bool { return kept[d.id] })
	m.sequence(m.root, items, func() { m.end(m.root, m.aggregate(m.root), false) })
}
