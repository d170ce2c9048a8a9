package definition

import (
	"cmp"
	"slices"
)

// locateProblems gives each problem with a position, but without a path, the path of the value at its position, or of
// the last one before it.
func (r *reader) locateProblems(root *Node) {
	var open []located
	for i := range r.problems {
		if p := &r.problems[i]; p.Path == "" && p.Line > 0 {
			open = append(open, located{problem: p, best: Position{File: p.File}})
		}
	}
	if len(open) == 0 {
		return
	}
	slices.SortFunc(open, func(a, b located) int { return a.problem.compare(b.problem.Position) })
	// A value is noted at the first problem that is not before it, and later ones take it from there.
	var visit func(n *Node, at *path)
	visit = func(n *Node, at *path) {
		if n == nil {
			return
		}
		i, _ := slices.BinarySearchFunc(open, n.Position, func(l located, p Position) int { return l.problem.compare(p) })
		if i < len(open) {
			open[i].take(n.Position, at)
		}
		for i, item := range n.Items {
			visit(item, at.item(i))
		}
		for _, field := range n.Fields {
			visit(field.Value, at.at(field.Key))
		}
	}
	visit(root, nil)
	for i := range open {
		if i > 0 {
			open[i].take(open[i-1].best, open[i-1].at)
		}
		open[i].problem.Path = open[i].at.String()
	}
}

// located is a problem with the last value before it.
type located struct {
	problem *Problem
	best    Position
	at      *path
}

func (l *located) take(p Position, at *path) {
	if p.File == l.best.File && p.compare(l.best) >= 0 {
		l.best, l.at = p, at
	}
}

// compare orders the positions of files.
func (p Position) compare(other Position) int {
	return cmp.Or(cmp.Compare(p.File, other.File), cmp.Compare(p.Line, other.Line), cmp.Compare(p.Column, other.Column))
}
