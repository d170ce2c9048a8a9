// Package steps turns the stages and steps of a pipeline into the requests of a manager: step
// types into payloads, connectors into addresses with references to secrets, and kinds of
// infrastructure into drivers and selectors. Operators extend its tables by a [Config].
//
//	table, err := steps.New(steps.Config{Connectors: connectors})
//	request, target, err := table.Stage(info, opening)
//	step, err := table.Step(target, appended)
//
// The package reads rendered values only. Errors name the field of the pipeline.
//
// Start reading at table.go.
package steps
