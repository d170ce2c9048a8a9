// Package transaction runs stages as transactions (SPEC T): an init, any number
// of executes, and a cleanup that is kept, also across a kill -9.
//
//	slots := capacity.NewSlots(2)
//	stages := transaction.New(localDriver, transaction.WithSlots(slots))
//	if err := stages.Recover(ctx); err != nil { ... } // what an earlier process left
//	routes := stages.Routes()                         // goes into a router.RouteMap
//	p := poller.New(c, router.New(routes), poller.WithSlots(slots))
//	...
//	err = stages.Close(ctx) // after Poll has returned: ends what is still open
//
// Every resource is recorded in the ledger, a folder with one file for each open
// transaction, before the driver creates it. Start reading at manager.go, then
// transaction.go.
package transaction
