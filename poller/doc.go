// Package poller turns a client and a router into a delegate. It registers, sends
// heartbeats, polls, acquires tasks, runs them and delivers the answers until its
// context ends (rules P1 to P7).
//
//	c, err := client.New(endpoint, accountID, secret)
//	stages := transaction.New(driver)
//	p := poller.New(c, router.New(stages.Routes()), poller.WithStages(stages), poller.WithTags("linux"))
//	err = p.Run(ctx, 16)
//
// A delegate that runs only standalone tasks needs no stages. Register and Poll are
// the two halves of Run, for programs that need the delegate's id.
//
// # Executors
//
// Inits, executes, cleanups and standalone tasks each have their own executors, as
// many as the argument of Run or Poll. A delegate full of running steps therefore still runs cleanups and standalone tasks
// at once (rule P3). An init also needs a stage slot. Without a free slot it stays
// with the manager.
//
// # Drain
//
// When the context ends, on a signal ([WithSignals]), or after [Poller.Shutdown],
// the poller drains. It takes no new stages and no standalone tasks, and continues
// with the open transactions. It returns when they have ended and the idle period
// has passed. If the grace ends first, it cancels the running tasks and returns when
// their handlers have. All goroutines of the package end before Poll returns.
//
// Start reading at poller.go; each loop has its own file.
package poller
