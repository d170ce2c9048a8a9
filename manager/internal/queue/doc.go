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
// [Queue.NextDeadline], and takes what happened from [Queue.Events].
//
// Accounts are separate: ids of delegates, works and tasks are unique within their
// account, and no operation of one account shows or changes anything of another.
//
// # Structure
//
//	account
//	├── delegates, works, tasks      maps by id
//	├── requirements                 what works ask for; each has its waiting works, in order
//	├── groups                       limits; each has the requirements that wait for its room
//	└── tags
//	    └── shards                   one for stages, one for single tasks
//	        ├── waiters              requirements of which works wait, by their first work
//	        └── candidates           delegates that can take a work, best first
//
// Works that need the same, kind, selectors, task types and groups, share a requirement.
// Delegates and limits treat them alike, so only the first of them can be next. Works
// are ordered by priority, then by age.
//
// A requirement waits in one shard only: in that of the selector that the fewest
// delegates have; without selectors, in that of the tag that all delegates have. A
// delegate is a candidate in the shards of all its tags while it can take a work. Its
// rank is: most free slots, fewest stages, fewest open tasks, longest idle, first to
// register.
//
// All ordered lists, and that of the deadlines, are of one type: see sorted.go.
//
// # Decisions
//
// Two decisions keep one invariant: no work waits while a delegate that may have it is
// free. A delegate fits a requirement if it has all selectors among its tags, supports
// the task types of a variant, and has not refused the work.
//
// For a work that begins to wait (bestDelegate):
//
//  1. If a group of the work is full, the requirement leaves its shard and waits in the
//     group. No decision meets it there.
//  2. Otherwise the candidates of the requirement's shard are searched in order. The
//     first one that fits gets the offer. A delegate that has missed an offer of this
//     work comes last.
//
// For a delegate with a free slot (nextWork), until it is full:
//
//  1. In the shards of each of its tags, the waiters are searched in order, up to the
//     first one that fits or that is after the best one so far.
//  2. Waiters with a full group leave for that group, as above.
//  3. The first work of the best waiter is offered to the delegate.
//
// A work that gives up a slot or room in a group, because it ends or goes back to the
// queue, triggers both decisions for all that can use them, in the order of the queue
// (dispatch and admit).
//
// # Costs
//
// A decision costs the logarithm of the number of works and delegates, plus one step for
// each neighbour in a shard that is before the one chosen and does not fit: a
// requirement with another selector besides, or a free delegate that lacks a selector or
// a type. With 1,000,000 stages that wait and 10,000 delegates a queue makes at least
// 500,000 decisions a second (BenchmarkDecisions). A stage that waits takes less than
// 500 bytes. [Queue.Place] looks at all requirements, [Queue.Places] at all works. See
// docs/benchmarks.md for figures.
//
// # Replicas
//
// The state depends on the operations and their times alone: on no clock, no random
// number and no order of a map. Queues with the same [Config] that carry out the same
// operations at the same times, with [Registration.NewID] given, are the same down to
// the bytes of [Queue.Save]. A queue that was saved and loaded is the saved one. So a
// log of the operations keeps a queue, and processes that follow one log have the same
// queue.
//
// # Leases
//
// An offer is a promise to one delegate for AcquireTimeout. An acquired task belongs to
// its delegate until the delegate answers or is lost. The table says what happens when
// the two sides do not agree:
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
//	the lost delegate returns              under its id; List.Aborted has the tasks that it is to stop, and
//	                                       its detached tasks are offered
//	it returns before it is lost           it keeps everything
//	the delegate is unknown                ErrUnknownDelegate for all but answers, which have no effect; it
//	                                       gets a new id when it registers
//	a second answer                        accepted, without effect
//	an answer after the time-out           accepted; the delegate need not stop the task any more
//	an answer to an abort                  the task ends as Aborted, whatever the answer says
//	an answer before it was acquired       ErrNotOwner; the task stays offered
//	an answer of another delegate          ErrNotOwner
//	an answer that hands the task back     it waits at its old place for another delegate; the same answer may
//	                                       come again without effect
//	an answer before a retry of the stage  accepted, without effect
//	an answer that an agent will answer    accepted; the task is not given out again
//	an answer to an unknown task           ErrUnknownTask
//
// # Files
//
// queue.go has the state, dispatch.go the decisions, requirement.go and shard.go what
// they search, group.go the limits, timer.go and gap.go the deadlines, saved.go the
// format of a saved queue.
package queue
