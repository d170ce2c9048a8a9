// Package definition reads pipelines: YAML of the form v0 with its templates, input sets and
// inputs, into typed values that know their positions. docs/pipelines.md is the reference of the
// keys.
//
//	p, problems := definition.Read(definition.Source{Name: "shop.yaml", Text: text}, definition.Options{})
//	if problems.Errors() {
//		return problems
//	}
//
// One table of keys (keys.go) drives the checks, the suggestions for unknown keys, and the JSON
// Schema. Start reading at types.go, then at read.go.
package definition
