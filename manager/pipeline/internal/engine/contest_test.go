package engine

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// contest runs a random pipeline on the engine and on the model.
type contest struct {
	t       *rapid.T
	machine *Machine
	run     Run
	rows    map[string][]byte
	model   *model
	waiting []Event // that will happen
	past    []Event // that have happened
	started []string
	once    map[string]bool
	aborts  int
	// decisions are the orders of a person to steps that wait.
	decisions int
}

func (c *contest) load() *State {
	s := &State{Run: c.run, Nodes: map[string]*Node{}}
	for path, row := range c.rows {
		n := &Node{}
		require.NoError(c.t, json.Unmarshal(row, n))
		s.Nodes[path] = n
	}
	return s
}

// apply applies an event to the engine. It reports whether anything changed.
func (c *contest) apply(e Event) bool {
	e.Time = start
	s := c.load()
	changed, commands, err := c.machine.Apply(s, e)
	require.NoError(c.t, err)
	for _, n := range changed {
		c.rows[n.Path] = encode(c.t, n)
	}
	for path, n := range s.Nodes {
		require.Equal(c.t, string(encode(c.t, n)), string(c.rows[path]), "the change of %s was not reported", path)
	}
	c.take(commands)
	return len(changed) > 0
}

// take turns commands into the events that the world may send.
func (c *contest) take(commands []Command) {
	for _, command := range commands {
		switch command.Kind {
		case OpenStage:
			c.note(command.Node, command.Attempt, command.Open.Identifier)
			c.waiting = append(c.waiting, Event{Kind: StageOpened, Node: command.Node, Attempt: command.Attempt})
		case AppendSteps:
			for _, step := range command.Steps {
				c.note(step.Node, step.Attempt, step.Identifier)
				c.waiting = append(c.waiting, Event{Kind: StepEnded, Node: step.Node, Attempt: step.Attempt})
			}
		case FinishStage, AbortStage:
			c.waiting = append(c.waiting, Event{Kind: StageEnded, Node: command.Node, Attempt: command.Attempt, Result: &Result{}})
		case SetTimer:
			c.waiting = append(c.waiting, Event{Kind: TimerFired, Node: command.Node, Attempt: command.Attempt, Timer: command.Timer})
		}
	}
}

func (c *contest) note(path string, attempt int, id string) {
	key := path + "#" + strconv.Itoa(attempt)
	require.False(c.t, c.once[key], "%s was started twice", key)
	c.once[key] = true
	c.started = append(c.started, id)
}

// decide answers a step that waits for a person, or runs its stage again from any node that has run.
func (c *contest) decide() {
	var nodes, waiting []*modelNode
	var walk func(n *modelNode)
	walk = func(n *modelNode) {
		for _, child := range n.children {
			if child.kind != StageNode && child.parent.kind != PipelineNode {
				nodes = append(nodes, child)
			}
			if c.model.held[child.path] != nil {
				waiting = append(waiting, child)
			}
			walk(child)
		}
	}
	walk(c.model.root)
	switch {
	case len(waiting) == 0 || c.model.aborted:
		return
	case rapid.Bool().Draw(c.t, "answer"):
		n := rapid.SampledFrom(waiting).Draw(c.t, "waiting")
		action := rapid.SampledFrom([]string{actionRetry, actionIgnore, actionMarkAsFailure}).Draw(c.t, "action")
		c.t.Logf("## answer %s to %s", action, n.path)
		require.True(c.t, c.apply(Event{Kind: Answered, Node: n.path, Answer: &Answer{Action: action}}))
		c.model.answer(n, action)
	default:
		n := rapid.SampledFrom(nodes).Draw(c.t, "from")
		e := Event{Kind: RetryRun, Node: n.path, Time: start}
		_, _, err := c.machine.Apply(c.load(), e)
		again := c.model.again(n)
		c.t.Logf("## again from %s: %v %v", n.path, again, err)
		if !again {
			require.Error(c.t, err, "the model refuses it")
			return
		}
		require.NoError(c.t, err)
		c.apply(e)
	}
	c.compare()
}

// step lets one event happen, in any order, and now and then one that has happened before.
func (c *contest) step() {
	draw := rapid.IntRange(0, 99).Draw(c.t, "event")
	switch {
	case draw < 10 && len(c.past) > 0:
		old := rapid.SampledFrom(c.past).Draw(c.t, "past")
		require.False(c.t, c.apply(old), "a repeated event changed the run: %+v", old)
		return
	case draw < 12 && c.aborts == 0:
		c.aborts++
		c.t.Logf("## abort")
		c.apply(Event{Kind: Abort})
		c.model.abort()
		c.compare()
		return
	case draw < 15:
		c.lose()
		return
	case draw < 17:
		c.mark()
		return
	case len(c.model.held) > 0 && c.decisions < 20 && rapid.Bool().Draw(c.t, "decide"):
		c.decisions++
		c.decide()
		return
	}
	if len(c.waiting) == 0 {
		return
	}
	i := rapid.IntRange(0, len(c.waiting)-1).Draw(c.t, "next")
	e := c.waiting[i]
	c.waiting = slices.Delete(c.waiting, i, i+1)
	if e.Kind == StepEnded {
		e.Result = &Result{Failure: rapid.SampledFrom([]FailureKind{"", "", FailureExitCode, FailureImage, FailureAborted}).Draw(c.t, "failure")}
	}
	if e.Result != nil {
		c.t.Logf("## %s %s %d %q", e.Kind, e.Node, e.Attempt, e.Result.Failure)
	} else {
		c.t.Logf("## %s %s %d", e.Kind, e.Node, e.Attempt)
	}
	current := c.load().Nodes[e.Node].Attempt == e.Attempt
	c.apply(e)
	c.past = append(c.past, e)
	if !current {
		return
	}
	switch e.Kind {
	case StageOpened:
		c.tell(e.Node+" opened", Result{})
	case StepEnded:
		c.tell(e.Node, *e.Result)
	case StageEnded:
		c.tell(e.Node, *e.Result)
	case TimerFired:
		path := e.Node
		if e.Timer == TimeoutTimer {
			path += " timeout"
		}
		if f := c.model.timers[path]; f != nil {
			delete(c.model.timers, path)
			f()
		}
	}
	c.compare()
}

// mark marks a running step as failed.
func (c *contest) mark() {
	var running []string
	for path, n := range c.load().Nodes {
		if n.Kind == StepNode && n.Status == Running && n.Sent && !find(c.model.root, path).background {
			running = append(running, path)
		}
	}
	if len(running) == 0 {
		return
	}
	slices.Sort(running)
	path := rapid.SampledFrom(running).Draw(c.t, "marked")
	c.t.Logf("## mark %s", path)
	require.True(c.t, c.apply(Event{Kind: Answered, Node: path, Answer: &Answer{Action: actionMarkAsFailure}}))
	find(c.model.root, path).marked = true
	c.compare()
}

// lose ends a stage that the manager has.
func (c *contest) lose() {
	var open []string
	for path, n := range c.model.stages {
		if !n.status.Ended() {
			open = append(open, path)
		}
	}
	if len(open) == 0 {
		return
	}
	slices.Sort(open)
	path := rapid.SampledFrom(open).Draw(c.t, "lost")
	n := c.load().Nodes[path]
	if n.Finishing || !n.Open {
		return
	}
	e := Event{Kind: StageEnded, Node: path, Attempt: n.Attempt, Result: &Result{Failure: FailureUnknown}}
	c.t.Logf("## lost %s", path)
	c.apply(e)
	c.past = append(c.past, e)
	c.tell(path, *e.Result)
	c.compare()
}

func (c *contest) tell(path string, r Result) {
	f := c.model.results[path]
	if f == nil {
		return
	}
	if c.model.aborted && !strings.HasSuffix(path, " opened") && c.model.stages[path] == nil && !c.model.late[path] {
		return // the step ends with its stage
	}
	if c.model.aborted && strings.HasSuffix(path, " opened") {
		return
	}
	delete(c.model.results, path)
	f(r)
}

// compare compares the started steps and the statuses of all nodes with the model.
func (c *contest) compare() {
	c.model.settle()
	ours, theirs := slices.Clone(c.started), slices.Clone(c.model.started)
	slices.Sort(ours)
	slices.Sort(theirs)
	require.Equal(c.t, theirs, ours)
}
