package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// world carries out the commands of a machine as a manager with delegates would. The state goes
// through JSON between all events, one row for each node, and only changed rows are written.
type world struct {
	t     require.TestingT
	m     *Machine
	run   Run
	rows  map[string][]byte
	now   time.Time
	queue []Event
	timer []Command
	// results are the results of a step by its identifier, one for each attempt. The last one
	// repeats. A step without results succeeds.
	results map[string][]Result
	// hold are identifiers of steps and stages whose results do not come.
	hold map[string]bool
	// started are the steps in the order of their start.
	started  []string
	attempts map[string]int
	steps    map[string]Step
	opened   map[string]*Opening
	commands []Command
	// running are the steps that a stage has, with their attempts.
	running map[string]map[string]int
}

// pipeline reads a pipeline with one CI stage for each stage of the text.
func pipeline(t require.TestingT, text string) *definition.Pipeline {
	p, problems := definition.Read(definition.Source{Name: "p.yaml", Text: []byte(text)}, definition.Options{StepTypes: []string{typeApproval}})
	require.False(t, problems.Errors(), "%v", problems)
	return p
}

// newWorld starts a run of the stages in a text, which is indented as the items of stages.
func newWorld(t require.TestingT, stages string, change ...func(*Run)) *world {
	return newWorldOf(t, pipeline(t, "pipeline:\n  identifier: p\n  name: p\n  stages:\n"+indent(stages, 4)), change...)
}

func newWorldOf(t require.TestingT, p *definition.Pipeline, change ...func(*Run)) *world {
	m, err := New(p)
	require.NoError(t, err)
	w := &world{
		t: t, m: m, now: start, rows: map[string][]byte{}, results: map[string][]Result{}, hold: map[string]bool{},
		attempts: map[string]int{}, steps: map[string]Step{}, opened: map[string]*Opening{}, running: map[string]map[string]int{},
		run: Run{ID: "r1", Account: "acme", Number: 7, StartedAt: start},
	}
	for _, f := range change {
		f(&w.run)
	}
	return w
}

func indent(text string, by int) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	least := -1
	for _, line := range lines {
		if trimmed := strings.TrimLeft(line, "\t "); trimmed != "" && (least < 0 || len(line)-len(trimmed) < least) {
			least = len(line) - len(trimmed)
		}
	}
	for i, line := range lines {
		lines[i] = strings.Repeat(" ", by) + strings.TrimRight(line[min(least, len(line)):], "\t ")
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "\t", "  ") + "\n"
}

// begin starts the run.
func (w *world) begin() *world {
	s, commands, err := w.m.Start(w.run)
	require.NoError(w.t, err)
	for path, n := range s.Nodes {
		w.rows[path] = encode(w.t, n)
	}
	w.take(commands)
	return w
}

func encode(t require.TestingT, n *Node) []byte {
	data, err := json.Marshal(n)
	require.NoError(t, err)
	return data
}

// state loads the state from the rows.
func (w *world) state() *State {
	s := &State{Run: w.run, Nodes: map[string]*Node{}}
	for path, row := range w.rows {
		n := &Node{}
		require.NoError(w.t, json.Unmarshal(row, n))
		s.Nodes[path] = n
	}
	return s
}

// apply applies an event and writes the changed rows.
func (w *world) apply(e Event) error {
	e.Time = w.now
	s := w.state()
	changed, commands, err := w.m.Apply(s, e)
	if err != nil {
		return err
	}
	for _, n := range changed {
		require.Same(w.t, s.Nodes[n.Path], n, "%s is not a node of the run", n.Path)
		w.rows[n.Path] = encode(w.t, n)
	}
	for path, n := range s.Nodes {
		require.JSONEq(w.t, string(encode(w.t, n)), string(w.rows[path]), "the change of %s was not reported", path)
	}
	w.take(commands)
	return nil
}

// take turns commands into the events that follow.
func (w *world) take(commands []Command) {
	w.commands = append(w.commands, commands...)
	for _, c := range commands {
		data, err := json.Marshal(c)
		require.NoError(w.t, err)
		c = Command{}
		require.NoError(w.t, json.Unmarshal(data, &c))
		switch c.Kind {
		case SetTimer:
			w.timer = append(w.timer, c)
		case OpenStage:
			w.opened[c.Node] = c.Open
			w.running[c.Node] = map[string]int{}
			if !w.hold[c.Open.Identifier] {
				w.queue = append(w.queue, w.opening(c))
			}
		case AppendSteps:
			for _, step := range c.Steps {
				w.append(c.Node, step)
			}
		case AbortStep:
			w.send(c.Node, c.Attempt, Result{Failure: FailureAborted})
		case AbortStage, FinishStage:
			for path, attempt := range w.running[c.Node] {
				w.send(path, attempt, Result{Failure: FailureAborted})
			}
			w.queue = append(w.queue, Event{Kind: StageEnded, Node: c.Node, Attempt: c.Attempt, Result: &Result{}})
		}
	}
}

// opening opens a stage, or fails to if the stage has results.
func (w *world) opening(c Command) Event {
	r := w.result(c.Open.Identifier)
	if r.Failure != "" {
		return Event{Kind: StageEnded, Node: c.Node, Attempt: c.Attempt, Result: &r}
	}
	return Event{Kind: StageOpened, Node: c.Node, Attempt: c.Attempt}
}

func (w *world) append(stage string, step Step) {
	w.steps[step.Node] = step
	w.started = append(w.started, step.Identifier)
	r := w.result(step.Identifier)
	w.running[stage][step.Node] = step.Attempt
	if step.Type == typeBackground && r.Failure == "" {
		w.queue = append(w.queue, Event{Kind: StepEnded, Node: step.Node, Attempt: step.Attempt, Result: &r})
		return
	}
	if !w.hold[step.Identifier] {
		w.send(step.Node, step.Attempt, r)
	}
}

// result returns the result of the next attempt.
func (w *world) result(id string) Result {
	results := w.results[id]
	attempt := w.attempts[id]
	w.attempts[id]++
	if len(results) == 0 {
		return Result{}
	}
	return results[min(attempt, len(results)-1)]
}

func (w *world) send(path string, attempt int, r Result) {
	w.queue = append(w.queue, Event{Kind: StepEnded, Node: path, Attempt: attempt, Result: &r})
	for _, steps := range w.running {
		delete(steps, path)
	}
}

// drain applies all events that wait, without timers.
func (w *world) drain() *world {
	for len(w.queue) > 0 {
		e := w.queue[0]
		w.queue = w.queue[1:]
		require.NoError(w.t, w.apply(e))
	}
	return w
}

// tick fires the next timer. It returns false if there is none.
func (w *world) tick() bool {
	if len(w.timer) == 0 {
		return false
	}
	slices.SortStableFunc(w.timer, func(a, b Command) int { return a.Due.Compare(b.Due) })
	c := w.timer[0]
	w.timer = w.timer[1:]
	if c.Due.After(w.now) {
		w.now = c.Due
	}
	require.NoError(w.t, w.apply(Event{Kind: TimerFired, Node: c.Node, Attempt: c.Attempt, Timer: c.Timer}))
	return true
}

// play runs to the end, or until nothing happens by itself. Timers fire when they are due and
// nothing else happens.
func (w *world) play() *world {
	w.drain()
	for w.node(rootPath).Status.Ended() == false && w.tick() {
		w.drain()
	}
	return w
}

// node returns a node by its path, without pipeline.stages. at its beginning.
func (w *world) node(path string) *Node {
	row := w.rows[path]
	if row == nil {
		row = w.rows["pipeline.stages."+path]
	}
	if row == nil {
		return &Node{}
	}
	n := &Node{}
	require.NoError(w.t, json.Unmarshal(row, n))
	return n
}

// step returns a step of the stage build.
func (w *world) step(path string) *Node { return w.node("build.spec.execution.steps." + path) }

// statuses lists steps and stages with their statuses, in the order of their paths.
func (w *world) statuses() string {
	var all []string
	for path := range w.rows {
		n := w.node(path)
		if n.Kind != PipelineNode && n.Kind != StageNode || n.Status != Succeeded {
			all = append(all, n.Identifier+"="+string(n.Status))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func exit(code int) Result { return Result{Failure: FailureExitCode, ExitCode: &code} }

func outputs(pairs ...string) Result {
	r := Result{Outputs: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		r.Outputs[pairs[i]] = pairs[i+1]
	}
	return r
}

// stage writes a CI stage with steps.
func stage(id, steps string, more ...string) string {
	return fmt.Sprintf("- stage:\n    identifier: %s\n    name: %s\n    type: CI\n%s    spec:\n      platform: {os: Linux, arch: Amd64}\n      runtime: {type: Docker, spec: {}}\n      execution:\n        steps:\n%s",
		id, id, strings.Join(indentAll(more, 4), ""), indent(steps, 10))
}

func indentAll(texts []string, by int) []string {
	var all []string
	for _, text := range texts {
		if text != "" {
			all = append(all, indent(text, by))
		}
	}
	return all
}

// run writes Run steps with more keys.
func run(id string, more ...string) string {
	return fmt.Sprintf("- step:\n    identifier: %s\n    name: %s\n    type: Run\n    spec: {command: echo}\n%s", id, id, strings.Join(indentAll(more, 4), ""))
}

// eachStep writes plain steps.
func eachStep(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(run(id))
	}
	return b.String()
}

func build(t *testing.T, steps string, change ...func(*Run)) *world {
	t.Helper()
	return newWorld(t, stage("build", steps), change...)
}
