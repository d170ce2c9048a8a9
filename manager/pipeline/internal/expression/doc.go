// Package expression parses and evaluates the expressions of pipelines, such as
// <+pipeline.variables.version>. docs/expressions.md is the reference for the language.
//
// A text with expressions is a [Template]. Render replaces each expression by its value:
//
//	t, err := expression.Parse("deploy <+pipeline.variables.app> to <+matrix.env>")
//	text, err := t.Render(&expression.Environment{Scope: scope})
//
// A condition is a [Condition]: the whole text is one expression.
//
//	c, err := expression.ParseCondition(`<+codebase.branch> == "main"`)
//	run, err := c.Decide(&expression.Environment{Scope: scope, Secrets: expression.Refuse})
//
// The parser reads each text once and makes a tree of it. An inner expression is a node of the
// tree. Its value is never inserted into text that is parsed again. Only a value of type [Text]
// is parsed, because the author of the pipeline wrote it. All other values are data.
//
// Start reading at expression.go. The parser is in parse.go, the evaluation begins in eval.go.
package expression
