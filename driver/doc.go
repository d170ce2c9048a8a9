// Package driver defines what runs a stage: the [Driver] interface and its
// types. One infrastructure is one driver: this machine (driver/local), VMs,
// Kubernetes.
//
// The contract that everything rests on: a driver records a [Resource] in the
// [Ledger] before it creates it, and Cleanup works from such records alone, in
// another process, after a crash. Start reading at driver.go.
package driver
