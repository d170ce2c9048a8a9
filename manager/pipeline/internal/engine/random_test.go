package engine

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// setRuns sets the number of random pipelines from DLITE_PIPELINETEST_RUNS.
func setRuns(t *testing.T) {
	if runs := os.Getenv("DLITE_PIPELINETEST_RUNS"); runs != "" {
		require.NoError(t, flag.Set("rapid.checks", runs))
	}
}

// generator makes random pipelines for the engine and the model.
type generator struct {
	t    *rapid.T
	next int
	left int // how many steps are allowed
}

func (g *generator) chance(percent int) bool {
	return rapid.IntRange(0, 99).Draw(g.t, "chance") >= 100-percent
}

func (g *generator) id(prefix string) string {
	g.next++
	return prefix + strconv.Itoa(g.next)
}

func pick[T any](g *generator, values ...T) T { return rapid.SampledFrom(values).Draw(g.t, "pick") }

// common sets what all nodes may have.
func (g *generator) common(n *modelNode) {
	n.when = pick(g, "Success", "Success", "Success", "Failure", "All")
	if g.chance(10) {
		n.condition = pick(g, "true", "false")
	}
	if g.chance(20) {
		n.parallelism, n.limit = pick(g, 1, 2, 3), pick(g, 0, 1, 2)
	}
	if g.chance(40) {
		n.action = pick(g, "Ignore", "MarkAsSuccess", "MarkAsFailure", "StageRollback", "PipelineRollback", "Abort", "Retry", "Retry", "RetryStepGroup")
		n.errors = pick(g, "AllErrors", "Unknown", "PluginImageFailure")
		n.retries, n.interval = pick(g, 1, 2), g.chance(50)
	}
}

func (g *generator) pipeline() *modelNode {
	root := &modelNode{kind: PipelineNode, id: "p"}
	for range rapid.IntRange(1, 3).Draw(g.t, "stages") {
		var item []*modelNode
		for range pick(g, 1, 1, 2) {
			n := &modelNode{kind: StageNode, id: g.id("stage")}
			g.common(n)
			g.steps(n, 0)
			item = append(item, n)
		}
		root.items = append(root.items, item)
	}
	return root
}

// graph makes each stage its own item, with stages before it that it depends on.
func (g *generator) graph(root *modelNode) {
	var before []string
	var items [][]*modelNode
	for _, item := range root.items {
		for _, n := range item {
			for _, id := range before {
				if g.chance(50) {
					n.depends = append(n.depends, id)
				}
			}
			before = append(before, n.id)
			items = append(items, []*modelNode{n})
		}
	}
	root.items = items
}

func (g *generator) steps(c *modelNode, depth int) {
	for range rapid.IntRange(1, 3).Draw(g.t, "items") {
		var item []*modelNode
		for range pick(g, 1, 1, 1, 2, 3) {
			item = append(item, g.step(depth))
		}
		c.items = append(c.items, item)
	}
}

func (g *generator) step(depth int) *modelNode {
	if depth < 2 && g.left > 0 && g.chance(25) {
		n := &modelNode{kind: GroupNode, id: g.id("group")}
		g.common(n)
		n.timeout = g.chance(40)
		g.steps(n, depth+1)
		return n
	}
	g.left--
	n := &modelNode{kind: StepNode, id: g.id("step")}
	g.common(n)
	n.background = g.chance(10)
	return n
}

// define turns a random pipeline into a definition.
func define(root *modelNode, graph bool) *definition.Pipeline {
	p := &definition.Pipeline{Identifier: "p", Graph: graph}
	for _, item := range root.items {
		var stages []*definition.Stage
		for _, n := range item {
			s := &definition.Stage{Identifier: n.id, Type: "CI", When: whenOf(n), Strategy: strategyOf(n), FailureStrategies: failuresOf(n), DependsOn: n.depends}
			for _, below := range n.items {
				s.Steps = append(s.Steps, defineItem(below))
			}
			stages = append(stages, s)
		}
		p.Stages = append(p.Stages, definition.StageItem{Parallel: stages})
	}
	return p
}

func defineItem(item []*modelNode) definition.StepItem {
	var all []definition.StepItem
	for _, n := range item {
		if n.kind == StepNode {
			kind := "Run"
			if n.background {
				kind = typeBackground
			}
			all = append(all, definition.StepItem{Step: &definition.Step{
				Identifier: n.id, Type: kind, When: whenOf(n), Strategy: strategyOf(n), FailureStrategies: failuresOf(n),
			}})
			continue
		}
		group := &definition.Group{Identifier: n.id, When: whenOf(n), Strategy: strategyOf(n), FailureStrategies: failuresOf(n)}
		if n.timeout {
			group.Timeout = &definition.Node{Value: "1h"}
		}
		for _, below := range n.items {
			group.Steps = append(group.Steps, defineItem(below))
		}
		all = append(all, definition.StepItem{Group: group})
	}
	if len(all) == 1 {
		return all[0]
	}
	return definition.StepItem{Parallel: all}
}

func whenOf(n *modelNode) *definition.When {
	w := &definition.When{Status: n.when}
	if n.condition != "" {
		w.Condition = &definition.Node{Value: n.condition}
	}
	return w
}

func strategyOf(n *modelNode) *definition.Strategy {
	if n.parallelism == 0 {
		return nil
	}
	s := &definition.Strategy{Parallelism: &definition.Node{Value: int64(n.parallelism)}}
	if n.limit > 0 {
		s.MaxConcurrency = &definition.Node{Value: int64(n.limit)}
	}
	return s
}

func failuresOf(n *modelNode) []*definition.FailureStrategy {
	if n.action == "" {
		return nil
	}
	a := &definition.Action{Type: n.action, RetryCount: &definition.Node{Value: int64(n.retries)}}
	if n.interval {
		a.RetryIntervals = []*definition.Node{{Value: "10s"}}
	}
	return []*definition.FailureStrategy{{Errors: []string{n.errors}, Action: a}}
}

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

func TestTheEngineActsAsTheModel(t *testing.T) {
	setRuns(t)
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t, left: 12}
		root := g.pipeline()
		graph := g.chance(20)
		if graph {
			g.graph(root)
		}
		t.Logf("## graph %v%s", graph, draw(root, 0))
		machine, err := New(define(root, graph))
		require.NoError(t, err)
		c := &contest{
			t: t, machine: machine, run: Run{ID: "r", StartedAt: start}, rows: map[string][]byte{}, once: map[string]bool{},
			model: &model{root: root, graph: graph, hold: rapid.Bool().Draw(t, "hold")},
		}
		if c.model.hold {
			c.run.HoldFailed = time.Hour
		}
		s, commands, err := machine.Start(c.run)
		require.NoError(t, err)
		for path, n := range s.Nodes {
			c.rows[path] = encode(t, n)
		}
		c.take(commands)
		c.model.start()
		c.compare()
		c.play()
		for range 2 {
			if g.chance(40) {
				c.retry()
				c.play()
			}
		}
	})
}

// play lets events happen until the run ends.
func (c *contest) play() {
	for deadline := 0; len(c.waiting) > 0; deadline++ {
		require.Less(c.t, deadline, 5000, "the run does not end")
		c.step()
	}
	c.finish()
}

// retry runs the ended run again from a stage that it reached.
func (c *contest) retry() {
	n := rapid.SampledFrom(c.model.root.children).Draw(c.t, "stage")
	c.t.Logf("## retry %s", n.id)
	require.True(c.t, c.apply(Event{Kind: RetryRun, Node: n.path}))
	c.model.retry(n.id)
	c.aborts = 0
	c.compare()
}

// finish compares the final statuses.
func (c *contest) finish() {
	s := c.load()
	require.True(c.t, s.Root().Status.Ended(), "nothing is left to happen, and the run is %s", s.Root().Status)
	require.Zero(c.t, s.Root().Active)
	var compare func(n *modelNode)
	compare = func(n *modelNode) {
		node := s.Nodes[n.path]
		require.NotNil(c.t, node, n.path)
		require.Equal(c.t, n.status, node.Status, "%s: %s", n.path, node.Reason)
		for _, child := range n.children {
			compare(child)
		}
	}
	compare(c.model.root)
	require.Equal(c.t, time.Time{}, s.Root().Due)
}

// draw shows a random pipeline.
func draw(n *modelNode, depth int) string {
	text := fmt.Sprintf("\n## %s%s when %s%s parallelism %d/%d action %s of %s (%d, %v) background %v timeout %v depends %v", strings.Repeat("  ", depth), n.id, n.when,
		n.condition, n.parallelism, n.limit, n.action, n.errors, n.retries, n.interval, n.background, n.timeout, n.depends)
	for i, item := range n.items {
		for _, below := range item {
			text += fmt.Sprintf(" [%d]", i) + draw(below, depth+1)
		}
	}
	return text
}
