// Package queue is the manager's memory of who can work and what is to be done:
// delegates with their slots, stages and single tasks, and the state of each
// task between submission and answer (SPEC Q1-Q4, Q6).
//
// A [Work] waits until a delegate may have it. The queue then offers its first
// task to that delegate, the delegate acquires it and answers it:
//
//	q := queue.New(queue.Config{})
//	d := q.Register("account", queue.Registration{Name: "mac-1", Tags: []string{"macos"}})
//	_ = q.SetCapacity("account", d, 2)
//	_ = q.Submit("account", &queue.Work{ID: "build", Stage: true, Selectors: []string{"macos"}, Variants: init})
//	list, _ := q.List("account", d, "")              // the init task is offered to mac-1
//	t, _ := q.Acquire("account", d, list.Events[0].TaskID)
//	_ = q.Complete("account", d, t.ID, queue.Answer{Outcome: queue.Success})
//	_ = q.Append("account", "build", step)           // further tasks of the stage, same delegate
//	_ = q.Release("account", "build")                // the slot is free for the next stage
//
// Every method is one step that happens wholly or not at all and is safe for
// concurrent use. The queue starts no goroutine and reads no clock but
// [Config.Now]: whoever owns it calls [Queue.Tick] when [Queue.NextDeadline]
// comes, and takes what happened from [Queue.Events].
//
// What a decision costs does not depend on how much waits, and hardly on how many
// delegates there are, as long as many of them or of the works are alike; see
// dispatch.go, and docs/benchmarks.md for figures. [Queue.Place], [Queue.Places]
// and [Queue.Waiting] do look at all that waits, or all it needs.
//
// Nothing of one account is visible or reachable from another: ids of delegates,
// stages and tasks are unique within their account.
//
// Start reading at queue.go; the decisions are in dispatch.go.
package queue
