// Package journal makes a state machine durable and keeps it equal in several
// processes.
//
// A [Machine] is the state of a program in memory together with the rules by which
// commands change it. The rules depend only on the state, the command and its time.
// Processes that apply the same commands in the same order therefore have the same
// state. A [Journal] puts commands into a [Log], which orders and stores them, and
// applies them in the order of the log:
//
//	j, err := journal.Open(ctx, journal.Config[Command]{Log: log, New: newMachine}, machine)
//	result, err := j.Do(ctx, command) // is in the log, and applied here
//
// A command therefore happens completely or not at all, even if a process dies. A
// decision needs no transaction of the store, and a read needs no request. All
// processes on a log see the same commands in the same order. From time to time a
// journal saves the state and drops the log before it.
//
// Without a Log the state is only in memory. Package manager/sqlite has the log for one
// process, and package manager/redis the log for several.
//
// Start reading at journal.go.
package journal
