// Package queuetest tests managers on a kind of store: that the queue keeps what
// SPEC Q1 to Q4 promise, whatever is asked of it in whatever order.
//
//	func TestTheQueueOnSQLite(t *testing.T) {
//		queuetest.Run(t, queuetest.Target{Store: func(tb testing.TB) func() journal.Log { ... }})
//	}
//
// [Run] makes random operations, each on a random one of the managers, over the
// delegates' protocol and the API, and carries each out in a model too. The model
// has the rules in their simplest form: it looks at all that waits and at all
// delegates each time, and keeps no order, no index and no file. After each
// operation it says how it must have been answered, and what the managers must
// show: every status, who has what, every place in the queue, what each delegate is
// offered and is to stop, and every event, in its order.
//
// What must hold at any time is checked on top, in the model's state, which is that
// of the managers: see promises.go.
//
// Start reading at run.go. What the model knows is in model.go, who gets what in
// rules.go, what comes after what in stage.go.
package queuetest
