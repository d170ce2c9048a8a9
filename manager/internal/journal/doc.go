// Package journal keeps a state machine durable, and the same in several
// processes.
//
// A [Machine] is a program's state in memory together with the rules by which
// commands change it. Since the rules depend on nothing but the state, the
// command and its time, whoever carries out the same commands in the same order
// has the same state. A [Journal] puts commands into a [Log], which orders and
// keeps them, and carries them out in the log's order:
//
//	j, err := journal.Open(ctx, journal.Config[Command]{Log: log, New: newMachine}, machine)
//	result, err := j.Do(ctx, command) // is in the log, and carried out here
//
// So every command happens wholly or not at all, whatever dies; a decision needs
// no transaction of the store's; reading asks nobody; and all processes on one
// log see the same in the same order. From time to time the state is saved and
// the log before it dropped.
//
// Without a Log the state is in memory alone. Package journal/sqlite has the log
// of one process, package journal/redis that of many.
//
// Start reading at journal.go.
package journal
