// Package definition reads pipelines: YAML of the form v0 with its templates, input sets and
// inputs, into typed values that know their positions.
//
// Start reading at types.go.
package definition
