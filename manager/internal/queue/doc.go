// Package queue gives works to delegates: stages, which hold a slot of their delegate,
// and single tasks (rules Q1-Q4 and Q6). It keeps all state in memory.
//
// A [Work] waits until a delegate may have it. Then the queue offers its first task to
// that delegate, which acquires the task and answers it:
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
// Every method is atomic and safe for concurrent use. The queue starts no goroutine and
// reads no clock but [Config.Now]. The caller calls [Queue.Tick] at
// [Queue.NextDeadline], and takes the events from [Queue.Events]. Accounts are
// separate: no operation of one account shows or changes anything of another.
//
// # Structure
//
//	queue
//	├── timers, finished              deadlines by time; ended works by the order of their ends
//	└── account
//	    ├── delegates, works, tasks   maps by id
//	    ├── requirements              needs, by key; each has its waiting works by their turns
//	    ├── groups                    limits; each has the requirements that wait for its room
//	    └── tags                      by name
//	        ├── waiters               requirements that wait for a delegate, by their turns
//	        └── candidates            delegates that can take a work, best first
//
// All lists are sorted lists of one type: see sorted.go. A work's turn is its place in the
// queue: first by priority, then by age.
//
// Works that need the same kind, selectors, task types and groups share a requirement.
// Delegates and limits treat them alike, so only the first of them can be next. The turn of
// a requirement is that of its first work. It waits in one list only: at a group that is
// full, or at the selector that the fewest delegates have.
//
// A delegate that can take a work is a candidate at all its tags. The best one has the most
// free slots, then the fewest stages, then the fewest open tasks, then was idle for
// longest, then was the first to register. Waiters and candidates of stages are apart from
// those of single tasks.
//
// One function decides whether a delegate could take the works of a requirement:
// delegate.fitness in place.go. The reasons why stages wait, and the demand for more
// delegates, count its results.
//
// # Life of a stage
//
//	Submit ──▶ later ──NotBefore──▶ pending ──offer──▶ given ──Acquire──▶ running ──Release──▶ over ──Retention──▶ forgotten
//	                                  ▲ ▲ ▲              │ │                 │                  ▲
//	                                  │ │ └──not acquired┘ │                 │                  │
//	                                  │ └──delegate lost───┘                 │                  │
//	                                  └──Retry, answered for another delegate┘                  │
//	                                  └──QueueTimeout, Abort: its first task ends, then Release─┘
//
// A stage without a NotBefore begins as pending. It is in a list of its requirement only
// while it is pending. It has a slot of its delegate, and room in its groups, while it is
// given or running. Each state has one deadline: the end of the wait, of the offer, of the
// run, or of the retention. A single task has the same life, without a slot, and ends with
// its answer.
//
// # Paths
//
// A submission (Submit): the work joins its requirement and waits (wait, enqueue). If a
// group of it is full, the requirement moves to the group. Otherwise the first candidate
// that fits gets the work (assign, bestDelegate): it has all selectors among its tags,
// supports the task types of a variant, and has not refused the work. A candidate that
// missed an offer of the work comes last.
//
// A poll (List) only reads: it returns the open offers of a delegate and the tasks that
// the delegate must stop. A decision that changes them wakes waiting polls (wakePoll).
//
// An acquisition (Acquire) turns an offer into a lease. The deadline of the run replaces
// the deadline of the offer.
//
// An end (Release, Retry, and works that go back to the queue) releases a slot and room in
// groups. As long as a work fits, the one with the earlier turn of these two is next
// (dispatch):
//
//   - the first work for the delegate: at each of its tags the waiters are searched in
//     order, up to the first one that fits or is after the best one so far (nextWork);
//   - the first requirement of a group that has room again (admit).
//
// So no work waits while a delegate that may have it is free.
//
// A decision costs the logarithm of the number of works and delegates, plus one step for
// each neighbour that comes before the one chosen and does not fit. With 1,000,000 stages
// that wait and 10,000 delegates a queue makes at least 500,000 decisions a second
// (BenchmarkDecisions). A stage that waits takes less than 500 bytes. [Queue.Place] looks at
// all requirements, [Queue.Places] at all works. See docs/benchmarks.md.
//
// # Replicas
//
// The state depends only on the operations and their times, not on a clock, a random
// number or the order of a map. Queues with the same [Config] that execute the same
// operations at the same times, with [Registration.NewID] set, save the same bytes
// ([Queue.Save]). A loaded queue equals the saved one. So a log of the operations is
// enough to restore a queue, and processes that follow one log have the same queue.
//
// # Leases
//
// An offer is a promise to one delegate for AcquireTimeout. An acquired task belongs to
// its delegate until the delegate answers or is lost. The table has the cases in
// which the two sides do not agree:
//
//	an offer is not acquired in time       it goes back to its old place; another delegate is preferred, and
//	                                       a late Acquire returns nothing, unless it was offered there again
//	acquired again by the same delegate    the same task again: the first response may have been lost
//	acquired by another delegate           nothing; the task stays offered to its delegate
//	acquired after its end or an abort     nothing
//	the delegate is lost with an offer     it goes back to its old place
//	the delegate is lost with a task       the task ends as Abandoned; the stage keeps its slot until it is
//	                                       released or retried; a detached task waits for the return
//	the lost delegate answers              accepted, without effect: the task has ended
//	the lost delegate returns              under its id; List.Aborted has the tasks that it must stop, and
//	                                       its detached tasks are offered
//	one of these, and it has peers         a further task that it has not acquired goes to a peer: see peer.go
//	it returns before it is lost           it keeps everything
//	the delegate is unknown                ErrUnknownDelegate for all but answers, which have no effect; it
//	                                       gets a new id when it registers
//	a second answer                        accepted, without effect
//	an answer after the time-out           accepted; the delegate need not stop the task any more
//	an answer to an abort                  the task ends as Aborted with any answer
//	the delegate cannot learn of an abort  the task ends as Aborted at once; the answer has no effect
//	an answer before it was acquired       ErrNotOwner; the task stays offered
//	an answer of another delegate          ErrNotOwner
//	an answer that hands the task back     it waits at its old place for another delegate; the same answer may
//	                                       come again without effect
//	an answer before a retry of the stage  accepted, without effect
//	an answer that an agent will answer    accepted; the task is not given out again
//	an answer to an unknown task           ErrUnknownTask
//	a stage has a lease, and no task       it keeps its delegate; Stranded if that is lost and has no peer
//
// # Files
//
// queue.go has the state, work.go and task.go the operations, dispatch.go the decisions,
// requirement.go and group.go the lists that decisions search, peer.go the delegates of a
// group, timer.go the deadlines, lease.go the leases of stages, and saved.go the format of
// a saved queue.
package queue
