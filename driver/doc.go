// Package driver defines the [Driver] interface, which runs the steps of stages
// on one kind of infrastructure, and its types. The packages below it implement
// it: driver/local, driver/vm and driver/kubernetes.
//
//	err := d.Init(ctx, env, ledger)
//	result, err := d.Execute(ctx, env, step, output, ledger)
//	result.End() // when the caller has stored the result and the output
//	left, err := d.Cleanup(ctx, recorded) // the resources in the ledger
//
// Package driver/transaction makes these calls for the tasks of a manager. To
// run stages on another infrastructure, implement [Driver] and pass it to
// transaction.New.
//
// A driver must record each [Resource] in the [Ledger] before it creates the
// resource. Cleanup works from these records alone, also in another process
// after a crash. Start reading at driver.go.
package driver
