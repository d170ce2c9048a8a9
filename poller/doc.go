// Package poller turns a client and a router into a delegate: it registers,
// sends heartbeats, polls, acquires tasks, runs them and delivers the answers,
// until its context ends (SPEC P).
//
//	c, err := client.New(endpoint, accountID, secret)
//	p := poller.New(c, router.New(routes), poller.WithName("build-7"), poller.WithTags("linux"))
//	info, err := p.Register(ctx)
//	err = p.Poll(ctx, parallelExecutors, info.ID, interval)
//
// # Lanes
//
// Each [task.Kind] has a lane of its own, and each lane runs as many tasks at
// once as Poll is told. So a delegate full of running steps still takes
// cleanups and standalone tasks at once (SPEC P3). An init needs a stage slot
// too (see [WithSlots]); without a free one it stays with the manager.
//
// # Ending
//
// When Poll's context ends, or Shutdown is called, the poller drains: it takes
// no new stages and no standalone tasks, goes on with the transactions that are
// open, and returns when they are over and the idle period has passed. When the
// grace ends first, it cancels what runs and returns as soon as the handlers
// have. The package's goroutines all end before Poll returns.
//
// Start reading at poller.go; each loop has its own file.
package poller
