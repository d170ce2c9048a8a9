// Package connector describes how a delegate reaches an outside system, such as a Git server, a
// registry or a cloud.
//
// A manager keeps connectors with references of secrets. It sends one as a part of a task's
// data, and the delegate resolves the references before the handler runs (rule S1). So the same
// type has references in the manager and values in a handler.
//
// Start reading at connector.go.
package connector
