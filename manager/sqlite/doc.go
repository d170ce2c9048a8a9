// Package sqlite keeps a journal's log in a SQLite database: one file, one
// process, and what was acknowledged is on the disk.
//
//	log, err := sqlite.Open(ctx, "/var/lib/dlite/manager.db", sqlite.Config{})
//	j, err := journal.Open(ctx, journal.Config[Command]{Log: log, New: newMachine, Keys: keys}, newMachine())
//
// [Log.Backup] copies it while it is in use, [Restore] puts a copy in place and
// [Check] looks whether a file is whole.
//
// Start reading at sqlite.go.
package sqlite
