// Package perpetual assigns perpetual tasks to delegates (rule G1). It keeps all state
// in memory, and depends only on its operations and their times.
//
// A task has at most one holder: a session, which is a process of a delegate. The
// session has one lease for all its tasks, which each report renews. An assignment has
// a token, larger than each token before it. A result counts only with the token of the
// present assignment, from its holder.
//
//	set, resumed --> free --assign--> held --release--> free
//	                  ^                |
//	                  |                +-- withdraw --> held, asked back --release--> free
//	                  +-- the lease ends, the delegate unregisters, or the withdrawal is too old
//
// A task is asked back before it moves, when it is paused, replaced or deleted, and when
// its delegate drains or has lost a tag. The holder stops the run and releases the task.
// So a task runs on two delegates at once only if a holder ignores the end of its lease.
//
// Tokens, holders, states and events are durable, because an operation is a command of
// the manager's log. A renewal is one command for all tasks of a session. The time of
// the next run is derived from the last run.
//
// All functions expect that the caller holds the manager's lock.
package perpetual
