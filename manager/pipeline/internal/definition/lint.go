package definition

import (
	"errors"
	"regexp"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// use is the purpose of a text.
type use int

const (
	otherText use = iota
	conditionText
	scriptText
	nameText
	axisText
	environmentText
)

// String names the purpose in messages.
func (u use) String() string {
	return [...]string{"text", "condition", "script", "name", "axis", "environment"}[u]
}

// linter looks for expressions that fail or that rarely do what the author wanted.
type linter struct {
	*reader
	pipeline *Pipeline
	stages   map[string]*lintStage
	lines    map[string][]string // of the files
	words    map[string][]*Step  // steps whose texts hold the word, at most two
	used     map[*Step]map[string]bool
	// variables are those of the pipeline by their names.
	variables map[string]*Variable
	// quiet suppresses warnings, but notes which outputs are used.
	quiet bool
}

func (l *linter) warn(at Position, code, text, hint string) {
	if !l.quiet {
		l.reader.warn(at, code, nil, text, hint)
	}
}

// spot is a place within a text. Its position is calculated for problems only.
type spot struct {
	node   *Node
	offset int
}

func (l *linter) position(at spot) Position {
	if l.quiet || l.crowded() {
		return at.node.Position
	}
	return l.locate(at.node, at.offset)
}

func (l *linter) warnAt(at spot, code, text, hint string) { l.warn(l.position(at), code, text, hint) }

func (l *linter) errorAt(at spot, code, text, hint string) {
	l.error(l.position(at), code, text, hint)
}

func (l *linter) error(at Position, code, text, hint string) {
	l.reader.error(at, code, nil, text, hint)
}

// context is the place from which an expression is evaluated.
type context struct {
	use    use
	stage  *lintStage
	levels []map[string]*lintNode // of the groups around it, the stage first
	step   *Step
	order  int
	axes   map[string]bool
	// open reports that the axes are not known before the run.
	open bool
	// groups are the groups around it.
	groups []*Group
}

// Lint returns warnings and errors about the expressions of a pipeline: names that do not exist,
// secrets in wrong places, values from outside in scripts, and conditions with a constant
// result. The files are those that were read; they make positions within texts exact.
func Lint(p *Pipeline, files ...Source) Problems {
	l := &linter{reader: newReader(Options{}), pipeline: p, stages: map[string]*lintStage{}, lines: map[string][]string{},
		used: map[*Step]map[string]bool{}, variables: byName(p.Variables)}
	for _, file := range files {
		l.lines[file.Name] = strings.Split(string(file.Text), "\n")
	}
	for _, s := range p.All() {
		l.stages[s.Identifier] = newLintStage(s)
	}
	l.collectWords()
	l.lintPipeline()
	l.unusedOutputs()
	l.locateProblems(p.Document)
	return l.done()
}

func (l *linter) lintPipeline() {
	p := l.pipeline
	top := &context{}
	l.text(nameNode(p.Document.Get("pipeline")), top, nameText)
	l.variablesText(p.Variables, top)
	l.tree(p.Document.Get("pipeline").Get("properties"), top)
	l.tree(p.Timeout, top)
	for _, s := range p.All() {
		if s.Skip == "" {
			l.lintStage(l.stages[s.Identifier])
		}
	}
}

func nameNode(n *Node) *Node { return n.Get("name") }

func (l *linter) variablesText(variables []*Variable, c *context) {
	for _, v := range variables {
		l.text(v.Value, c, environmentText)
		l.text(v.Default, c, environmentText)
	}
}

func (l *linter) lintStage(s *lintStage) {
	outside := &context{stage: s, order: -1}
	l.when(s.When, outside)
	inside := s.context()
	l.strategy(s.Strategy, outside)
	l.variablesText(s.Variables, inside)
	if s.Spec != nil && s.Spec.Kind == Map {
		for _, field := range s.Spec.Fields {
			if field.Key != "execution" {
				l.tree(field.Value, inside)
			}
		}
	}
	l.failures(s.FailureStrategies, inside)
	l.steps(s.Steps, inside)
}

func (l *linter) steps(items []StepItem, c *context) {
	for _, item := range items {
		switch {
		case item.Step != nil:
			l.step(item.Step, c)
		case item.Group != nil:
			g := item.Group
			inner := c.in(g)
			l.when(g.When, inner)
			l.strategy(g.Strategy, c)
			l.variablesText(g.Variables, inner)
			l.failures(g.FailureStrategies, inner)
			l.steps(g.Steps, inner)
		default:
			l.steps(item.Parallel, c)
		}
	}
}

func (l *linter) step(s *Step, c *context) {
	inner := c.at(s)
	l.strategy(s.Strategy, c.orderOf(s))
	l.when(s.When, inner)
	l.text(s.Timeout, inner, otherText)
	l.failures(s.FailureStrategies, inner)
	if s.Spec == nil || s.Spec.Kind != Map {
		return
	}
	for _, field := range s.Spec.Fields {
		switch field.Key {
		case "command", "preCommand", "postCommand", "preFetchCommand", "args":
			if field.Value.Kind == Scalar && !isPlugin(s) {
				l.text(field.Value, inner, scriptText)
				continue
			}
			l.tree(field.Value, inner)
		case "envVariables", "settings":
			l.texts(field.Value, inner, environmentText)
		default:
			l.tree(field.Value, inner)
		}
	}
}

func isPlugin(s *Step) bool {
	switch s.Type {
	case "Run", "Background", "RunTests", "Test", "GitClone":
		return false
	}
	return true
}

func (l *linter) when(w *When, c *context) {
	if w != nil {
		l.text(w.Condition, c, conditionText)
	}
}

func (l *linter) strategy(s *Strategy, c *context) {
	if s == nil {
		return
	}
	l.text(s.When, c, conditionText)
	l.text(s.Parallelism, c, axisText)
	child := *c
	child.addAxes(s)
	if s.Matrix != nil {
		l.text(s.Matrix.NodeName, &child, nameText)
		for _, axis := range s.Matrix.Axes {
			l.texts(axis.Value, c, axisText)
		}
		for _, item := range s.Matrix.Exclude {
			l.texts(item, c, axisText)
		}
	}
	if s.Repeat != nil {
		l.text(s.Repeat.NodeName, &child, nameText)
		l.texts(s.Repeat.Items, c, axisText)
		l.texts(s.Repeat.Times, c, axisText)
	}
}

func (l *linter) failures(strategies []*FailureStrategy, c *context) {
	for _, f := range strategies {
		if f.Action != nil {
			l.text(f.Action.Condition, c, conditionText)
		}
	}
}

func (l *linter) tree(n *Node, c *context) { l.texts(n, c, otherText) }

// texts checks all texts of a value.
func (l *linter) texts(n *Node, c *context, u use) {
	if n == nil {
		return
	}
	l.text(n, c, u)
	for _, item := range n.Items {
		l.texts(item, c, u)
	}
	for _, field := range n.Fields {
		l.texts(field.Value, c, u)
	}
}

// text checks one text.
func (l *linter) text(n *Node, c *context, u use) {
	text, ok := value(n).(string)
	if !ok || isInput(n) {
		return
	}
	l.lastLine(n, text, u)
	if !n.Dynamic() && u != conditionText {
		return
	}
	here := *c
	here.use = u
	references, warnings, err := parseText(text, u)
	if err != nil {
		l.unreadable(n, u, err)
		return
	}
	for _, w := range warnings {
		l.warnAt(spot{n, w.Offset}, w.Code, w.Text, "")
	}
	l.spelling(n, text, u)
	if u == scriptText {
		l.comments(n, text, references)
	}
	for _, ref := range references {
		l.reference(n, ref, &here)
	}
}

func (l *linter) unreadable(n *Node, u use, err error) {
	at, text := n.Position, err.Error()
	var syntax *expression.SyntaxError
	if errors.As(err, &syntax) {
		at, text = l.locate(n, syntax.Offset), syntax.Text
	}
	l.error(at, "bad-expression", "the "+u.String()+" cannot be read: "+text, "")
}

// comments warns of expressions in comments of a script.
func (l *linter) comments(n *Node, text string, references []expression.Reference) {
	start, end, comment := 0, -1, false // of the line
	for _, ref := range references {
		for ref.Offset > end {
			start = end + 1
			length := strings.IndexByte(text[start:], '\n')
			if end = start + length; length < 0 {
				end = len(text)
			}
			comment = strings.HasPrefix(strings.TrimLeft(text[start:end], " \t"), "#")
		}
		if comment && ref.Offset >= start {
			l.warnAt(spot{n, ref.Offset}, "comment-expression", "an expression in a comment of a script is evaluated like any other", "remove it")
		}
	}
}

func parseText(text string, u use) ([]expression.Reference, []expression.Warning, error) {
	if u == conditionText {
		c, err := expression.ParseCondition(text)
		if err != nil {
			return nil, nil, err
		}
		return c.References(), c.Warnings(), nil
	}
	t, err := expression.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	return t.References(), t.Warnings(), nil
}

// lastLine warns of a line end at the end of a value that is one line.
func (l *linter) lastLine(n *Node, text string, u use) {
	if n.Block && (u == otherText || u == axisText || u == nameText) && strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n") {
		l.warn(n.Position, "trailing-newline", "the value ends in a line end", "write it in the line of its key, or with |-")
	}
}

var (
	hyphenName    = regexp.MustCompile(`<\+\s*([A-Za-z_][\w.]*\.[A-Za-z_]\w*)-([A-Za-z_][\w-]*)\s*>`)
	joinedResults = regexp.MustCompile(`>\s*-?<\+`)
)

// spelling warns of forms that mean something else than they look like.
func (l *linter) spelling(n *Node, text string, u use) {
	for _, m := range hyphenName.FindAllStringSubmatchIndex(text, -1) {
		name, rest := text[m[2]:m[3]], text[m[4]:m[5]]
		parent, last := name[:strings.LastIndex(name, ".")], name[strings.LastIndex(name, ".")+1:]
		l.warnAt(spot{n, m[0]}, "hyphen", "the hyphen in "+quote(name+"-"+rest)+" is a subtraction", `write <+`+parent+`.get("`+last+"-"+rest+`")>`)
	}
	if u == conditionText {
		if m := joinedResults.FindStringIndex(text); m != nil {
			l.warnAt(spot{n, m[0]}, "concatenation", "a condition does not join values that stand side by side", "join them with + between")
		}
	}
}
