package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// turn applies one event. It works through a list of containers to continue instead of calling
// itself, so that a chain of 10,000 skipped steps needs no deep stack.
type turn struct {
	m   *Machine
	s   *State
	now time.Time

	changed  map[*Node]bool
	order    []*Node
	commands []Command
	// appends holds the place in commands of the append-steps command of a stage.
	appends map[string]int
	// ready are containers that may continue, released are stages of a graph that ended.
	ready    []*Node
	released []*element
	// foreseen are nodes that are not in the state yet, for the announcement of steps.
	foreseen map[string]*Node
}

// Start returns the state of a new run and the first commands.
func (m *Machine) Start(run Run) (*State, []Command, error) {
	if run.ID == "" {
		return nil, nil, errors.New("a run needs an id")
	}
	if run.StartedAt.IsZero() {
		return nil, nil, fmt.Errorf("run %s has no start time", run.ID)
	}
	for _, id := range run.Stages {
		if m.root.byID[id] == nil {
			return nil, nil, fmt.Errorf("run %s selects the stage %q, which the pipeline does not have", run.ID, id)
		}
	}
	s := &State{Run: run, Nodes: map[string]*Node{}}
	t := m.turn(s, run.StartedAt)
	root := &Node{
		Path: rootPath, Source: rootPath, Kind: PipelineNode, Identifier: m.root.id, Name: m.root.name, Attempt: 1, CreatedAt: run.StartedAt,
	}
	s.Nodes[rootPath] = root
	t.run(root)
	t.work()
	return s, t.commands, nil
}

// Apply applies an event to s. It returns the nodes that changed and the commands that follow.
// An event that is late, repeated or about an unknown node returns neither. Apply returns a
// [RefusedError] for an abort, an answer or a retry that does not fit the state of its node. If
// Apply returns an error, s has not changed.
func (m *Machine) Apply(s *State, e Event) ([]*Node, []Command, error) {
	if s.Root() == nil {
		return nil, nil, errors.New("the state has no root node")
	}
	if e.Time.IsZero() {
		return nil, nil, fmt.Errorf("event %s has no time", e.Kind)
	}
	t := m.turn(s, e.Time)
	if err := t.event(&e); err != nil {
		return nil, nil, err
	}
	t.work()
	return t.order, t.commands, nil
}

// RefusedError reports an order of a person that does not fit the state of the run.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

func (m *Machine) turn(s *State, now time.Time) *turn {
	return &turn{m: m, s: s, now: now, changed: map[*Node]bool{}, appends: map[string]int{}}
}

func (t *turn) event(e *Event) error {
	switch e.Kind {
	case Abort, Answered, RetryRun:
		return t.person(e)
	}
	n := t.s.Nodes[e.Node]
	if n == nil || n.Attempt != e.Attempt || n.Status.Ended() || n.Status == NotStarted {
		return nil
	}
	if t.element(n) == nil {
		return fmt.Errorf("the definition has no %s: it is not the one of the run", n.Source)
	}
	switch e.Kind {
	case StageOpened:
		t.stageOpened(n)
	case StepEnded, StageEnded:
		if e.Result == nil {
			return fmt.Errorf("event %s of %s has no result", e.Kind, e.Node)
		}
		if e.Kind == StepEnded {
			t.stepEnded(n, e.Result)
		} else {
			t.stageEnded(n, e)
		}
	case Waits:
		t.noteWait(n, e.Reason)
	case TimerFired:
		t.timer(n, e.Timer)
	default:
		return fmt.Errorf("unknown kind of event %q", e.Kind)
	}
	return nil
}

// work continues containers until none can continue.
func (t *turn) work() {
	for len(t.ready)+len(t.released) > 0 {
		if len(t.released) > 0 {
			e := t.released[0]
			t.released = t.released[1:]
			t.release(e)
			continue
		}
		c := t.ready[0]
		t.ready = t.ready[1:]
		t.advance(c)
	}
}

// touch notes that n has changed.
func (t *turn) touch(n *Node) {
	if !t.changed[n] {
		t.changed[n] = true
		t.order = append(t.order, n)
	}
}

func (t *turn) command(c Command) { t.commands = append(t.commands, c) }

func (t *turn) element(n *Node) *element { return t.m.elements[n.Source] }

func (t *turn) parent(n *Node) *Node {
	if n.Parent == "" {
		return nil
	}
	if p := t.s.Nodes[n.Parent]; p != nil || t.foreseen == nil {
		return p
	}
	return t.foreseen[n.Parent]
}

// stageOf returns the stage around n, which may be n.
func (t *turn) stageOf(n *Node) *Node {
	for n != nil && n.Kind != StageNode {
		n = t.parent(n)
	}
	return n
}

// create makes the node of an element below a parent. If the node exists already, it begins
// another attempt.
func (t *turn) create(parent *Node, e *element, path string, kind Kind) *Node {
	n := t.s.Nodes[path]
	if n == nil {
		n = &Node{Path: path}
		t.s.Nodes[path] = n
	} else if n.Status != NotStarted {
		t.forget(n)
	}
	*n = Node{
		Path: path, Source: e.path, Parent: parent.Path, Kind: kind, Identifier: e.id, Name: cmp.Or(e.name, e.id), Type: e.typeName(),
		Order: e.order, Status: Queued, Attempt: n.Attempt + 1, CreatedAt: t.now, Past: n.Past,
	}
	t.touch(n)
	return n
}

// forget moves the results of an attempt of n into its past.
func (t *turn) forget(n *Node) {
	if n.Waits != "" {
		t.setStatus(n, Queued)
	}
	past := append(n.Past, Past{
		Attempt: n.Attempt, Number: n.Number, StageAttempt: n.StageAttempt, Status: n.Status, Reason: n.Reason, StartedAt: n.StartedAt, EndedAt: n.EndedAt,
	})
	if len(past) > maxPast {
		past = append([]Past(nil), past[len(past)-maxPast:]...)
	}
	*n = Node{
		Path: n.Path, Source: n.Source, Parent: n.Parent, Kind: n.Kind, Identifier: n.Identifier, Name: n.Name, Type: n.Type,
		Order: n.Order, Status: NotStarted, Attempt: n.Attempt, CreatedAt: n.CreatedAt, Past: past,
		Index: n.Index, Total: n.Total, Postfix: n.Postfix, Matrix: n.Matrix, Repeat: n.Repeat,
	}
	t.touch(n)
}

// setStatus sets the status of a node that is not ending, and what its ancestors show of it.
func (t *turn) setStatus(n *Node, status Status) {
	if n.Waits != "" {
		t.countWait(n, n.Waits, -1)
		n.Waits = ""
	}
	if status.Waiting() {
		n.Waits = status
		t.countWait(n, status, 1)
	}
	n.Status = status
	t.touch(n)
}

// countWait counts a wait for a person at the ancestors of n, which show it.
func (t *turn) countWait(n *Node, status Status, by int) {
	for p := t.parent(n); p != nil; p = t.parent(p) {
		p.Waiting.add(status, by)
		if p.Status == Running || p.Status.Waiting() && p.Waits == "" {
			p.Status = Running
			for _, wait := range waits {
				if p.Waiting[wait] > 0 {
					p.Status = wait
					break
				}
			}
		}
		t.touch(p)
	}
}

// end ends n with a final status.
func (t *turn) end(n *Node, status Status, reason string) {
	t.setStatus(n, status)
	n.Reason, n.EndedAt, n.Due, n.Sent = clip(reason), t.now, time.Time{}, false
	p := t.parent(n)
	if p == nil || n.Background {
		return
	}
	if n.RolledBack {
		t.s.Root().RolledBack = true
		t.touch(t.s.Root())
	}
	if n.Kind == StepNode && status.Broken() {
		if stage := t.stageOf(n); len(stage.Failures) < maxFailures {
			stage.Failures = append(stage.Failures, n.Identifier)
			t.touch(stage)
		}
	}
	if n.Kind != GroupNode || n.StartedAt.IsZero() || n.FailureKind != "" {
		t.count(n, status, 1)
	}
	t.leave(p, n)
}

// count adds n to the tally of its ancestors, up to the next strategy, stage or pipeline.
func (t *turn) count(n *Node, status Status, by int) {
	for p := t.parent(n); p != nil; p = t.parent(p) {
		p.Tally.add(status, by)
		if by > 0 && !status.Positive() && p.Why == "" {
			p.Why = clip(fmt.Sprintf("%s %s: %s", n.Kind, n.Identifier, n.Reason))
		}
		t.touch(p)
		if p.Kind != GroupNode {
			return
		}
	}
}

// leave reports to p that its child n is not active any more.
func (t *turn) leave(p, n *Node) {
	p.Active--
	t.touch(p)
	if p.Kind == StrategyNode {
		t.childEnded(p, n)
	}
	if p.Kind == PipelineNode && t.m.pipeline.Graph {
		t.released = append(t.released, t.element(n))
	}
	if p.Active == 0 || p.Kind == StrategyNode {
		t.ready = append(t.ready, p)
	}
}

// clip bounds a text that a node keeps, clipName the name of a person.
func clip(text string) string { return clipTo(text, maxText) }

func clipName(name string) string { return clipTo(name, maxName) }

func clipTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	return text[:end] + "..."
}
