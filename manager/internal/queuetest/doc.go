// Package queuetest tests that managers on a store keep rules Q1 to Q4 under any
// sequence of operations.
//
//	func TestTheQueueOnSQLite(t *testing.T) {
//		queuetest.Run(t, queuetest.Target{Store: func(tb testing.TB) func() journal.Log { ... }})
//	}
//
// [Run] makes random operations over the delegate protocol and the API. A random
// manager gets each of them. Run applies each operation to a model too. The model
// implements the rules in their simplest form: it scans all waiting work and all
// delegates each time, and has no index. The model predicts the answer to each
// operation. It also predicts the answers of the managers afterwards: every status, owner
// and place in the queue, the offers and aborts of each delegate, and every event in
// its order.
//
// [RunPerpetual] does the same with perpetual tasks, see perpetual.go.
//
// Run also checks invariants in the model's state, which equals the state of the
// managers: see invariants.go.
//
// Start reading at run.go. The model's state is in model.go, the assignment of work
// in rules.go, and the order of a stage in stage.go.
package queuetest
