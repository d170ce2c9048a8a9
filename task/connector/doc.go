// Package connector has the handlers of the tasks that reach an outside system, such as a Git server, a registry or a
// cloud, with the settings of a connector:
//
//	maps.Copy(routes, connector.Routes(nil))
//
// A manager keeps connectors with references of secrets (docs/connectors.md lists their kinds and members). It sends
// one as a part of a task's data, and the delegate resolves the references before the handler runs (rule S1).
//
// Start reading at routes.go.
package connector
