package engine

import (
	"slices"
	"strconv"
)

// model is a simple and slow engine: functions that call each other when something has ended.
// It looks at the whole tree for each decision, and keeps nothing that could be saved.
type model struct {
	root    *modelNode
	graph   bool
	started []string
	// results and timers hold what happens when the result of a step or a timer comes.
	results map[string]func(Result)
	timers  map[string]func()
	paused  map[string]func()     // ends a stage that waits for its retry
	waits   map[string]func()     // ends a step or a group that waits for its retry, when a group around it expires
	late    map[string]bool       // steps that the manager has, in a group that has expired
	stages  map[string]*modelNode // that the manager has
	rolled  bool                  // a stage has rolled back
	stop    bool                  // no stage starts any more
	aborted bool
	hold    bool              // steps that fail without a strategy wait for a person
	held    map[string]func() // continues after such a step, by its path
	ready   []func()
}

// modelNode is a node of the model and of the random pipeline.
type modelNode struct {
	kind    Kind
	id      string
	path    string
	parent  *modelNode
	items   [][]*modelNode // of the definition
	depends []string

	when        string // Success, Failure or All
	condition   string // "", true or false
	parallelism int    // 0 is no strategy
	limit       int
	action      string // of the failure strategy
	errors      string
	retries     int
	interval    bool
	background  bool
	timeout     bool // of a group

	children []*modelNode // that were started
	status   Status
	leaf     bool // ended by itself, without children
	retried  int
	again    bool
	stopped  bool
	opened   bool
	blocked  bool // by a stage that did not succeed
	up       bool // a background step that has started
	expired  bool // the time-out of the group is over
	marked   bool // as failed by a person, while it runs

	// Of a container: the items that follow, the number of active nodes of the current item, and the function to call
	// after the last item.
	rest [][]*modelNode
	left int
	done func()
}

// copyOf returns a node as the definition has it, with the attempts so far.
func (n *modelNode) copyOf(parent *modelNode, id, path string) *modelNode {
	c := *n
	c.id, c.path, c.parent, c.children, c.status, c.leaf, c.retried, c.again, c.stopped = id, path, parent, nil, Running, false, 0, false, false
	c.opened, c.up, c.expired = false, false, false
	c.rest, c.left, c.done = nil, 0, nil
	return &c
}

func (m *model) start() {
	m.results, m.timers, m.stages = map[string]func(Result){}, map[string]func(){}, map[string]*modelNode{}
	m.paused, m.waits, m.late, m.held = map[string]func(){}, map[string]func(){}, map[string]bool{}, map[string]func(){}
	m.root.status, m.root.path = Running, rootPath
	if m.graph {
		m.dag(map[string]bool{})
	} else {
		m.sequence(m.root, m.root.items, func() { m.end(m.root, m.aggregate(m.root), false) })
	}
}

// sequence runs items one after the other.
func (m *model) sequence(c *modelNode, items [][]*modelNode, done func()) {
	if len(items) == 0 || m.halted(c) || c.again {
		done()
		return
	}
	c.rest, c.left, c.done = items[1:], len(items[0]), done
	for _, definition := range items[0] {
		m.begin(c, definition, func() { m.leave(c) })
	}
}

// leave continues a container when the last node of its current item has ended.
func (m *model) leave(c *modelNode) {
	if c.left--; c.left == 0 {
		m.later(c, func() { m.sequence(c, c.rest, c.done) })
	}
}

// answer ends the wait of a step as a person or the time decides.
func (m *model) answer(n *modelNode, action string) {
	done := m.held[n.path]
	delete(m.held, n.path)
	delete(m.timers, n.path)
	switch action {
	case actionRetry:
		n.status = Running
		m.step(n, done)
	case actionIgnore:
		m.end(n, IgnoreFailed, true)
		done()
	default:
		m.end(n, Failed, true)
		done()
	}
}

func (m *model) dag(begun map[string]bool) {
	left := 0
	var check func()
	find := func(id string) *modelNode {
		for _, n := range m.root.children {
			if n.id == id {
				return n
			}
		}
		return nil
	}
	check = func() {
		for _, item := range m.root.items {
			d := item[0]
			free, blocked := !begun[d.id] && !m.aborted && !m.stop, false
			for _, on := range d.depends {
				n := find(on)
				if free = free && n != nil && n.status.Ended(); free && (!n.status.Positive() || n.blocked) {
					blocked = true
				}
			}
			if !free {
				continue
			}
			begun[d.id] = true
			left++
			done := func() { left--; m.later(m.root, check) }
			if blocked {
				n := d.copyOf(m.root, d.id, rootPath+".stages."+d.id)
				n.blocked = true
				m.root.children = append(m.root.children, n)
				m.end(n, Skipped, true)
				done()
				continue
			}
			m.begin(m.root, d, done)
		}
		if left == 0 && len(m.ready) == 0 {
			m.end(m.root, m.aggregate(m.root), false)
		}
	}
	check()
}

func (m *model) begin(parent, d *modelNode, done func()) {
	n := d.copyOf(parent, d.id, childPath(parent.kind, parent.path, d.id))
	n.kind = d.kind
	parent.children = append(parent.children, n)
	if d.parallelism == 0 {
		m.consider(n, done)
		return
	}
	n.kind = StrategyNode
	n.parallelism, n.limit = d.parallelism, d.limit
	next, active := 0, 0
	var fill func()
	fill = func() {
		for next < d.parallelism && (d.limit == 0 || active < d.limit) && !m.halted(n) {
			i := "_" + strconv.Itoa(next)
			next++
			active++
			child := d.copyOf(n, d.id+i, n.path+i)
			n.children = append(n.children, child)
			m.consider(child, func() { active--; m.later(n, fill) })
		}
		if active == 0 && !n.status.Ended() {
			m.end(n, m.outcome(n), true)
			done()
		}
	}
	m.later(n, fill)
}

func (m *model) consider(n *modelNode, done func()) {
	status := m.seen(n)
	failing, good := status.Broken(), status.Positive()
	if n.kind == StageNode {
		if status = m.overall(); true {
			failing, good = status.Broken() && !m.rolled, status.Positive()
		}
		if m.graph {
			good = true
		}
	}
	if n.when == "Success" && !good || n.when == "Failure" && !failing || n.condition == "false" {
		m.end(n, Skipped, true)
		done()
		return
	}
	switch n.kind {
	case StageNode:
		m.stage(n, done)
	case GroupNode:
		m.group(n, done)
	default:
		m.step(n, done)
	}
}

func (m *model) stage(n *modelNode, done func()) {
	m.stages[n.path] = n
	m.started = append(m.started, n.id)
	m.results[n.path+" opened"] = func(Result) {
		n.opened = true
		m.sequence(n, n.items, func() {
			status, background := m.aggregate(n), Succeeded
			if m.aborted {
				background = Aborted
			}
			m.results[n.path] = func(Result) {
				m.background(n, background)
				m.end(n, status, true)
				done()
			}
		})
	}
	m.results[n.path] = func(r Result) { // an end that nothing asked for
		if m.aborted {
			m.kill(n, Aborted)
			done()
			return
		}
		m.kill(n, failed(r.Failure))
		n.status, n.opened = Running, false
		m.failure(n, r.Failure, done)
	}
}

// kill ends everything below a stage.
func (m *model) kill(n *modelNode, status Status) {
	for _, child := range n.children {
		if child.status.Ended() {
			m.background(child, status)
		} else {
			m.kill(child, status)
		}
	}
	delete(m.results, n.path)
	delete(m.results, n.path+" opened")
	delete(m.timers, n.path)
	delete(m.held, n.path)
	m.end(n, status, true)
}

// background ends the background steps below n.
func (m *model) background(n *modelNode, status Status) {
	for _, child := range n.children {
		if child.up && !child.status.Ended() {
			m.end(child, status, false)
		}
		m.background(child, status)
	}
}

func (m *model) group(n *modelNode, done func()) {
	if attempt := n.retried; n.timeout {
		m.timers[n.path+" timeout"] = func() {
			if !n.status.Ended() && n.retried == attempt && !m.expired(n) {
				m.expire(n)
			}
		}
	}
	m.sequence(n, n.items, func() {
		if n.again && !m.expired(n) && !m.halted(n.parent) {
			again := func() {
				n.children, n.again = nil, false
				m.group(n, done)
			}
			n.retried++
			if n.interval {
				m.timers[n.path] = again
				m.waits[n.path] = func() { m.end(n, Expired, true); done() }
				n.children = nil
				return
			}
			again()
			return
		}
		m.end(n, m.outcome(n), false)
		done()
	})
}

func (m *model) step(n *modelNode, done func()) {
	m.started = append(m.started, n.id)
	delete(m.late, n.path)
	m.results[n.path] = func(r Result) {
		delete(m.results, n.path)
		marked := n.marked
		n.marked = false
		switch {
		case marked && !m.aborted && !m.expired(n):
			m.failure(n, FailureMarked, done)
		case m.expired(n):
			m.end(n, Expired, true)
			done()
		case n.background && r.Failure == "":
			n.up = true
			done()
		case r.Failure == "":
			m.end(n, Succeeded, true)
			done()
		case r.Failure == FailureAborted:
			m.end(n, Aborted, true)
			done()
		default:
			m.failure(n, r.Failure, done)
		}
	}
}

// failure applies the strategy of the nearest node with one that matches.
func (m *model) failure(n *modelNode, kind FailureKind, done func()) {
	var by *modelNode
	for p := n; p != nil && by == nil && !n.background; p = p.parent {
		if p.kind != StrategyNode && p.action != "" && (p.errors == "AllErrors" || slices.Contains(errorsOf(kind), p.errors)) {
			by = p
		}
	}
	status := failed(kind)
	if by == nil && m.hold && n.kind == StepNode && !n.background {
		n.status, m.held[n.path] = InterventionWaiting, done
		m.timers[n.path] = func() { m.answer(n, actionMarkAsFailure) }
		m.waits[n.path] = func() { delete(m.held, n.path); m.end(n, Expired, true); done() }
		return
	}
	if by != nil {
		switch by.action {
		case "Ignore":
			status = IgnoreFailed
		case "MarkAsSuccess":
			status = Succeeded
		case "Abort":
			status = Aborted
			defer m.abort()
		case "StageRollback", "PipelineRollback":
			m.stop = m.stop || by.action == "PipelineRollback"
			for p := n; p != nil; p = p.parent {
				p.stopped = p.stopped || p.kind == StageNode
			}
		case "Retry":
			if n.retried < by.retries {
				n.retried++
				n.children, n.stopped = nil, false
				again := m.step
				if n.kind == StageNode {
					again = m.stage
				}
				if by.interval {
					m.timers[n.path] = func() { again(n, done) }
					m.waits[n.path] = func() { m.end(n, Expired, true); done() }
					if n.kind == StageNode {
						m.paused[n.path] = func() { m.kill(n, Aborted); done() }
					}
				} else {
					again(n, done)
				}
				return
			}
		case "RetryStepGroup":
			group := n
			for group != nil && group.kind != GroupNode {
				group = group.parent
			}
			if group != nil && group.retried < by.retries {
				group.again, group.interval = true, by.interval
			}
		}
	}
	m.end(n, status, true)
	done()
}
