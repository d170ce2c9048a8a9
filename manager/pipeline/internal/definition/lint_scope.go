package definition

import (
	"strings"
)

// lintStage is a stage with an index of its steps.
type lintStage struct {
	*Stage
	level map[string]*lintNode
	nodes map[*Step]*lintNode
	group map[*Group]*lintNode
	count int
	// variables are those of the stage by their names.
	variables map[string]*Variable
}

// lintNode is a step or a group.
type lintNode struct {
	step   *Step
	parent *Group
	level  map[string]*lintNode // of a group
	order  int
	loops  bool
}

func newLintStage(s *Stage) *lintStage {
	l := &lintStage{Stage: s, nodes: map[*Step]*lintNode{}, group: map[*Group]*lintNode{}, variables: byName(s.Variables)}
	l.level = l.index(s.Steps, map[string]*lintNode{}, nil)
	return l
}

func byName(variables []*Variable) map[string]*Variable {
	result := make(map[string]*Variable, len(variables))
	for _, v := range variables {
		result[v.Name] = v
	}
	return result
}

func (s *lintStage) index(items []StepItem, level map[string]*lintNode, parent *Group) map[string]*lintNode {
	for _, item := range items {
		s.count++
		n := &lintNode{order: s.count, parent: parent}
		switch {
		case item.Step != nil:
			n.step, n.loops = item.Step, item.Step.Strategy != nil
			level[item.Step.Identifier] = n
			s.nodes[item.Step] = n
		case item.Group != nil:
			n.loops = item.Group.Strategy != nil
			level[item.Group.Identifier] = n
			s.group[item.Group] = n
			n.level = s.index(item.Group.Steps, map[string]*lintNode{}, item.Group)
		default:
			s.index(item.Parallel, level, parent)
		}
	}
	return level
}

// context returns the context of the stage's own fields.
func (s *lintStage) context() *context {
	c := &context{stage: s, levels: []map[string]*lintNode{s.level}}
	c.addAxes(s.Strategy)
	return c
}

func (c *context) addAxes(s *Strategy) {
	if s == nil {
		return
	}
	axes := make(map[string]bool, len(c.axes))
	for axis := range c.axes {
		axes[axis] = true
	}
	c.open = c.open || s.Whole != nil
	if s.Matrix != nil {
		for _, axis := range s.Matrix.Axes {
			axes[axis.Key] = true
		}
	}
	c.axes = axes
}

// in returns the context within a group.
func (c *context) in(g *Group) *context {
	inner := *c
	node := c.stage.group[g]
	inner.levels = append(append([]map[string]*lintNode(nil), c.levels...), node.level)
	inner.groups = append(append([]*Group(nil), c.groups...), g)
	inner.order = node.order
	inner.addAxes(g.Strategy)
	return &inner
}

// orderOf returns the context of the fields that decide how often the step runs.
func (c *context) orderOf(s *Step) *context {
	inner := *c
	inner.step, inner.order = s, c.stage.nodes[s].order
	return &inner
}

// at returns the context of a step.
func (c *context) at(s *Step) *context {
	inner := c.orderOf(s)
	inner.addAxes(s.Strategy)
	return inner
}

// longestName is the length up to which names of children of strategies are looked up.
const longestName = 300

// find returns the node with an identifier: also a child of a strategy, by its identifier with
// an index.
func find(level map[string]*lintNode, id string) *lintNode {
	if n := level[id]; n != nil {
		return n
	}
	for i := min(len(id), longestName) - 1; i > 0; i-- {
		if id[i] == '_' {
			if n := level[id[:i]]; n != nil && n.loops {
				return n
			}
		}
	}
	return nil
}

// collectWords notes which steps use which words, if at least one step has outputs. Outputs are
// variables of the environment of later steps.
func (l *linter) collectWords() {
	any := false
	for _, s := range l.stages {
		for step := range s.nodes {
			any = any || step.Spec.Get("outputVariables") != nil
		}
	}
	if !any {
		return
	}
	l.words = map[string][]*Step{}
	for _, s := range l.stages {
		for step := range s.nodes {
			l.addWords(step.Spec, step)
		}
	}
}

func (l *linter) addWords(n *Node, step *Step) {
	if n == nil {
		return
	}
	if text, ok := n.Value.(string); ok {
		for _, word := range strings.FieldsFunc(text, notInWord) {
			if users := l.words[word]; len(users) < 2 && (len(users) == 0 || users[0] != step) {
				l.words[word] = append(users, step)
			}
		}
	}
	for _, item := range n.Items {
		l.addWords(item, step)
	}
	for _, field := range n.Fields {
		l.addWords(field.Value, step)
	}
}

func notInWord(c rune) bool {
	return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
}

// outputs returns the declared outputs of a step.
func outputs(s *Step) []*Node {
	declared := s.Spec.Get("outputVariables")
	if declared == nil {
		return nil
	}
	return declared.Items
}

func (l *linter) unusedOutputs() {
	for _, s := range l.stages {
		for step := range s.nodes {
			for _, output := range outputs(step) {
				name := output.Get("name").Text()
				if name != "" && !l.used[step][name] && !l.used[step]["*"] && !l.usedElsewhere(name, step) {
					l.warn(output.Position, "unused-output", "the output "+quote(name)+" of the step "+quote(step.Identifier)+" is not used", "remove it, or use it in a later step")
				}
			}
		}
	}
}

func (l *linter) usedElsewhere(word string, step *Step) bool {
	for _, user := range l.words[word] {
		if user != step {
			return true
		}
	}
	return false
}

// locate returns the position of an offset within a text. The source tells it also for blocks
// and for text in quotes.
func (l *linter) locate(n *Node, offset int) Position {
	text := n.Text()
	lines := l.lines[n.File]
	if offset < 0 || offset >= len(text) || n.Line < 1 || n.Line > len(lines) {
		return n.Position
	}
	snippet, _, _ := strings.Cut(text[offset:], "\n")
	if len(snippet) > 40 {
		snippet = snippet[:40]
	}
	before := strings.Count(text[:min(len(text), offset+len(snippet)-1)], snippet)
	line, last := n.Line, min(len(lines), n.Line+strings.Count(text, "\n")+200)
	column := n.Column - 1
	for ; line <= last; line++ {
		source := lines[line-1]
		from := 0
		if line == n.Line {
			from = min(len(source), byteOffset(source, column))
		}
		for {
			i := strings.Index(source[from:], snippet)
			if i < 0 {
				break
			}
			if before == 0 {
				return Position{File: n.File, Line: line, Column: len([]rune(source[:from+i])) + 1}
			}
			before--
			from += i + len(snippet)
		}
	}
	return n.Position
}

// byteOffset returns the offset of a character of a line.
func byteOffset(line string, character int) int {
	for i := range line {
		if character == 0 {
			return i
		}
		character--
	}
	return len(line)
}
