// Package driver defines what runs a stage: the [Driver] interface and its
// types. One infrastructure is one driver: this machine (driver/local), VMs,
// Kubernetes.
//
//	err := d.Init(ctx, env, ledger)
//	result, err := d.Execute(ctx, env, step, output, ledger)
//	left, err := d.Cleanup(ctx, recorded) // the resources that the ledger has
//
// Package task/transaction calls it like that for the tasks of a manager; to run
// stages somewhere else, implement [Driver] and give it to transaction.New.
//
// The contract that everything rests on: a driver records a [Resource] in the
// [Ledger] before it creates it, and Cleanup works from such records alone, in
// another process, after a crash. Start reading at driver.go.
package driver
