// Package queue is the manager's memory of who can work and what is to be done:
// delegates with their slots, stages and single tasks, and the state of each
// task between submission and answer (SPEC Q1-Q4, Q6).
//
// A [Work] waits until a delegate may have it. The queue then offers its first
// task to that delegate, the delegate acquires it and answers it:
//
//	q := queue.New(queue.Config{})
//	d := q.Register("account", queue.Registration{NewID: id, Name: "mac-1", Tags: []string{"macos"}})
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
// # Replicas
//
// The state depends on the operations and their times alone, on no clock, no chance
// and no order of a map. Whoever carries out the same operations at the same times,
// with the same [Config] and the ids of new delegates given, has the same queue, down
// to the bytes of [Queue.Save]. A queue that was saved and loaded is the saved one. So
// a log of the operations keeps a queue, and several processes that follow one log
// have one queue.
//
// # Leases
//
// What is offered is promised to a delegate for a while, what it has acquired is its
// own until it answers or is lost. This is the answer to each case in which the two
// sides do not agree:
//
//	an offer is not acquired in time       it goes back to its old place; another delegate is preferred, and
//	                                       the late Acquire gets nothing, unless it was offered there again
//	acquired once more by the same one     the same task again: the first answer may have been lost
//	acquired by another delegate           nothing; it stays with the one that it was offered to
//	acquired after its end or an abort     nothing
//	the delegate is lost with an offer     it goes back to its old place
//	the delegate is lost with a task       the task ends as Abandoned; the stage keeps its slot until the owner
//	                                       releases or retries it; a detached task waits for the return
//	the lost delegate answers              accepted, and changes nothing: the task has ended
//	the lost delegate comes back           under its id; List.Aborted names what it had acquired and is to stop,
//	                                       and its detached tasks are there
//	it comes back before it is lost        it keeps everything
//	a delegate that is no more known       ErrUnknownDelegate for all but answers, which change nothing; it gets
//	                                       a new id when it registers
//	a second answer                        accepted, and changes nothing
//	an answer after the time-out           accepted, and changes nothing but that it need not stop the task any more
//	an answer to an abort                  the task ends as Aborted, whatever the answer says
//	an answer before it was acquired       ErrNotOwner; the task stays offered
//	an answer of another delegate          ErrNotOwner
//	an answer that hands the task back     it waits at its old place for another delegate; the same answer may
//	                                       come again and changes nothing
//	an answer before a retry of the stage  accepted, and changes nothing
//	half an answer: an agent will answer   accepted; the task is not given out again
//	an answer to nothing                   ErrUnknownTask
//
// What a decision costs does not depend on how much waits, and hardly on how many
// delegates there are, as long as many of them or of the works are alike; see
// dispatch.go, and docs/benchmarks.md for figures. Limits of groups cost no more than
// that: see group.go. [Queue.Place] looks at the kinds of what waits, [Queue.Places]
// at all of it.
//
// Nothing of one account is visible or reachable from another: ids of delegates,
// stages and tasks are unique within their account.
//
// Start reading at queue.go; the decisions are in dispatch.go, what is saved is in
// saved.go.
package queue
