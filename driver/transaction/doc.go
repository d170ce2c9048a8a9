// Package transaction runs stages as transactions (rules T1 to T7): an init, any
// number of steps, and a cleanup that happens also after a kill -9.
//
//	stages := transaction.New(driver, transaction.WithSlots(capacity.NewSlots(2)))
//	p := poller.New(c, router.New(stages.Routes()), poller.WithStages(stages))
//	err := p.Run(ctx, 16)
//
// The poller recovers, maintains and closes the stages. A program without a poller
// calls [Stages.Recover], [Stages.Maintain] and [Stages.Close] itself.
//
// The ledger records every resource before the driver creates it. It is a directory
// with one file for each open transaction. Start reading at stages.go, then
// lifecycle.go and transaction.go.
package transaction
