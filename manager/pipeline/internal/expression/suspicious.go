package expression

import (
	"slices"
	"strings"
)

// statuses are the words that the member status of a node may be.
var statuses = []string{"SUCCEEDED", "FAILED", "ABORTED", "EXPIRED", "ERRORED", "SKIPPED", "IGNORE_FAILED", "SUSPENDED", "APPROVAL_REJECTED",
	"RUNNING", "QUEUED", "PAUSED", "INTERVENTION_WAITING", "APPROVAL_WAITING", "INPUT_WAITING", "RESOURCE_WAITING"}

// Warnings returns places of the condition that are valid, and whose result is rarely the
// intended one.
func (c *Condition) Warnings() []Warning {
	if c.text != nil {
		return c.text.Warnings()
	}
	var s suspicions
	s.visit(c.node)
	return s.found
}

type suspicions struct {
	found []Warning
}

func (s *suspicions) add(offset int, code, text string) {
	s.found = append(s.found, Warning{Offset: offset, Code: code, Text: text})
}

func (s *suspicions) visit(x node) {
	switch x := x.(type) {
	case *delimited:
		s.visit(x.x)
	case *unary:
		s.visit(x.x)
	case *ternary:
		s.visit(x.condition)
		if x.yes != nil {
			s.visit(x.yes)
		}
		s.visit(x.no)
	case *binary:
		s.binary(x)
		s.visit(x.x)
		s.visit(x.y)
	}
}

func (s *suspicions) binary(x *binary) {
	switch x.operator {
	case "&&", "||":
		for _, operand := range []node{x.x, x.y} {
			if text, ok := constantText(operand); ok {
				s.add(x.offset, "constant-operand", `the operand "`+shorten(text, 40)+`" is a text and always the same: write a comparison on both sides of `+x.operator)
			}
		}
	case "==", "!=":
		s.equality(x, x.x, x.y)
		s.equality(x, x.y, x.x)
	case "<", "<=", ">", ">=":
		if isOrderedAsText(x.x) || isOrderedAsText(x.y) {
			s.add(x.offset, "ordered-text", `texts are compared character by character: "10" is less than "9"`)
		}
	}
}

// equality warns of a comparison of a value with a constant.
func (s *suspicions) equality(x *binary, value, constant node) {
	text, ok := constantText(constant)
	if !ok {
		return
	}
	if strings.Contains(text, "*") {
		s.add(x.offset, "literal-pattern", `the * in "`+shorten(text, 40)+`" is compared as a character: use =^ for a prefix, or =~ with a regular expression`)
	}
	if name := nameOf(value); (strings.HasSuffix(name, ".status") || strings.HasSuffix(name, ".currentStatus")) && !slices.Contains(statuses, text) {
		s.add(x.offset, "unknown-status", `a status is never "`+shorten(text, 40)+`": the words are SUCCEEDED, FAILED, SKIPPED, IGNORE_FAILED, ABORTED, EXPIRED and ERRORED`)
	}
}

// constantText returns the value of a literal that is text.
func constantText(x node) (string, bool) {
	l, ok := x.(*literal)
	if !ok {
		return "", false
	}
	text, ok := l.value.(string)
	return text, ok
}

// isOrderedAsText reports whether a node is a literal text or a variable of the pipeline, which is text.
func isOrderedAsText(x node) bool {
	if _, ok := constantText(x); ok {
		return true
	}
	name := nameOf(x)
	return strings.HasPrefix(name, "variables.") || strings.Contains(name, ".variables.")
}

// nameOf returns the dotted name that a node is, or "".
func nameOf(x node) string {
	switch x := x.(type) {
	case *path:
		return strings.Join(x.parts, ".")
	case *delimited:
		return nameOf(x.x)
	}
	return ""
}
