package definition

import (
	"fmt"
	"slices"
	"strconv"
)

// maxChildren is the most children that a strategy with fixed values may have.
const maxChildren = 256

func (r *reader) strategy(n *Node, at *path) *Strategy {
	if n == nil {
		return nil
	}
	s := &Strategy{Position: n.Position}
	if n.Kind != Map {
		s.Whole = n
		return s
	}
	s.Parallelism, s.When = n.Get("parallelism"), conditionOf(n, "when")
	s.OnFailure = n.Get("onFailure").Text()
	s.MaxConcurrency = n.Get("maxConcurrency")
	switch matrix := n.Get("matrix"); {
	case matrix == nil:
	case isInput(matrix):
		s.Whole, s.WholeMatrix = matrix, true
	default:
		s.Matrix = r.matrix(matrix, s, at.at("matrix"))
	}
	if repeat := n.Get("repeat"); repeat != nil && repeat.Kind == Map {
		s.Repeat = r.repeat(repeat, s, at.at("repeat"))
	}
	r.atLeast(s.Parallelism, 1, at.at("parallelism"))
	r.atMost(s.Parallelism, maxChildren, at.at("parallelism"))
	r.atLeast(s.MaxConcurrency, 1, at.at("maxConcurrency"))
	return s
}

// ParseStrategy reads a strategy that a person gives for a runtime input: YAML or JSON of the value of strategy,
// or of matrix. It is data: expressions in it are refused.
func ParseStrategy(text string, matrix bool) (*Strategy, error) {
	root, problem := parse(Source{Name: "input", Text: []byte(text)})
	if problem != nil {
		return nil, *problem
	}
	r := newReader(Options{})
	walk(root, nil, func(n *Node, at *path) {
		if n.Dynamic() {
			r.error(n.Position, "fixed-value", at, "an expression in the value of an input is not evaluated", "write the value")
		}
	})
	if matrix {
		at := root.Position
		root = &Node{Position: at, Kind: Map, Fields: []Field{{"matrix", at, root}}}
	}
	r.check(root, known().objects["strategy"], &path{key: "strategy"})
	s := r.strategy(root, &path{key: "strategy"})
	if problems := r.done(); problems.Errors() {
		return nil, problems
	}
	return s, nil
}

// inner takes maxConcurrency out of matrix or repeat. Both places are in use.
func (r *reader) inner(n *Node, s *Strategy, at *path) {
	if n == nil {
		return
	}
	if s.MaxConcurrency != nil {
		r.error(n.Position, "duplicate-key", at, "maxConcurrency stands inside and beside the strategy", "remove one of the two")
		return
	}
	r.checkScalar(n, &key{name: "maxConcurrency", shape: numberShape}, at)
	s.MaxConcurrency = n
}

func (r *reader) matrix(n *Node, s *Strategy, at *path) *Matrix {
	if n.Kind != Map {
		r.error(n.Position, "wrong-type", at, "matrix must be a map of axes with lists, not "+n.kindName(), "write matrix: {os: [linux, macos]}")
		return nil
	}
	m := &Matrix{Position: n.Position, NodeName: n.Get("nodeName")}
	r.inner(n.Get("maxConcurrency"), s, at.at("maxConcurrency"))
	for _, field := range n.Fields {
		switch field.Key {
		case "maxConcurrency", "nodeName":
		case "exclude":
			m.Exclude = r.exclude(field.Value, at.at("exclude"))
		default:
			r.axis(field, at.at(field.Key))
			m.Axes = append(m.Axes, field)
		}
	}
	if len(m.Axes) == 0 {
		r.error(n.Position, "no-children", at, "matrix has no axes", "write at least one axis with a list of values")
		return m
	}
	if len(m.Axes) > maxAxes {
		r.error(n.Position, "too-many-children", at, fmt.Sprintf("matrix has %d axes: the most is %d", len(m.Axes), maxAxes), "split the matrix")
		return m
	}
	r.checkExclude(m, at.at("exclude"))
	r.countCombinations(m, at)
	return m
}

// axis checks the values of one axis: a list, an expression or a runtime input.
func (r *reader) axis(field Field, at *path) {
	n := field.Value
	switch {
	case n.Dynamic():
	case n.Kind != List:
		r.error(n.Position, "wrong-type", at, fmt.Sprintf("the axis %s must be a list or an expression, not %s", quote(field.Key), n.kindName()),
			"write "+bounded(field.Key)+": ["+bounded(n.Text())+"]")
	case len(n.Items) == 0:
		r.error(n.Position, "no-children", at, fmt.Sprintf("the axis %s has no values", quote(field.Key)), "write at least one value")
	}
}

func (r *reader) exclude(n *Node, at *path) []*Node {
	if n.null() || isInput(n) {
		return nil
	}
	if n.Kind != List {
		r.error(n.Position, "wrong-type", at, "exclude must be a list of maps, not "+n.kindName(), "begin each item with a dash")
		return nil
	}
	for i, item := range n.Items {
		if item.Kind != Map {
			r.error(item.Position, "wrong-type", at.item(i), "the items of exclude must be maps of axes and values, not "+item.kindName(), "")
		}
	}
	return n.Items
}

// checkExclude warns of items that exclude nothing because they name something that is no axis.
func (r *reader) checkExclude(m *Matrix, at *path) {
	var axes []string
	for _, axis := range m.Axes {
		axes = append(axes, axis.Key)
	}
	for i, item := range m.Exclude {
		for _, field := range item.Fields {
			if !slices.Contains(axes, field.Key) {
				r.warn(field.At, "useless-exclude", at.item(i), fmt.Sprintf("%s is not an axis: the item excludes nothing", quote(field.Key)), r.suggest(field.Key, axes))
			}
		}
	}
}

// countCombinations refuses a matrix of fixed values with no or too many children.
func (r *reader) countCombinations(m *Matrix, at *path) {
	total := 1
	for _, axis := range m.Axes {
		if axis.Value.Kind != List {
			return
		}
		if total *= len(axis.Value.Items); total > 100*maxChildren {
			break
		}
	}
	if total > maxChildren && len(m.Exclude) == 0 || total > 100*maxChildren {
		r.error(m.Position, "too-many-children", at, fmt.Sprintf("matrix has more than %d combinations", maxChildren), "remove values, or split the matrix")
	}
}

func (r *reader) repeat(n *Node, s *Strategy, at *path) *Repeat {
	repeat := &Repeat{Position: n.Position, Times: n.Get("times"), Items: n.Get("items"), Start: n.Get("start"), End: n.Get("end"),
		PartitionSize: n.Get("partitionSize"), Unit: n.Get("unit").Text(), NodeName: n.Get("nodeName")}
	if inner := n.Get("maxConcurrency"); inner != nil {
		r.inner(inner, s, at.at("maxConcurrency"))
	}
	r.atLeast(repeat.Times, 1, at.at("times"))
	r.atMost(repeat.Times, maxChildren, at.at("times"))
	r.atLeast(repeat.Start, 0, at.at("start"))
	r.atLeast(repeat.End, 0, at.at("end"))
	r.atLeast(repeat.PartitionSize, 1, at.at("partitionSize"))
	r.checkRepeatItems(repeat.Items, at.at("items"))
	return repeat
}

func (r *reader) checkRepeatItems(n *Node, at *path) {
	switch {
	case n == nil || n.Dynamic():
	case n.Kind != List:
		r.error(n.Position, "wrong-type", at, "items must be a list or an expression, not "+n.kindName(), "")
	case len(n.Items) == 0:
		r.error(n.Position, "no-children", at, "items has no values", "write at least one value")
	case len(n.Items) > maxChildren:
		r.error(n.Position, "too-many-children", at, fmt.Sprintf("items has %d values: the most is %d", len(n.Items), maxChildren), "use partitionSize, or remove values")
	}
}

func (r *reader) atLeast(n *Node, least int, at *path) {
	if count, ok := whole(n); ok && count < least {
		r.error(n.Position, "bad-value", at, fmt.Sprintf("%d is too small: the least is %d", count, least), "")
	}
}

func (r *reader) atMost(n *Node, most int, at *path) {
	if count, ok := whole(n); ok && count > most {
		r.error(n.Position, "too-many-children", at, fmt.Sprintf("%d is too large: the most is %d", count, most), "")
	}
}

// whole returns the value of a whole number, also in quotes.
func whole(n *Node) (int, bool) {
	if n == nil || n.Kind != Scalar || n.Dynamic() {
		return 0, false
	}
	count, err := strconv.Atoi(n.Text())
	return count, err == nil
}
