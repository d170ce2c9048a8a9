// Package sqlite stores the log of a journal in a SQLite database. The database is one
// file, for one process. Acknowledged entries are on the disk.
//
//	log, err := sqlite.Open(ctx, "/var/lib/dlite/manager.db", sqlite.Config{})
//	j, err := journal.Open(ctx, journal.Config[Command]{Log: log, New: newMachine, Keys: keys}, newMachine())
//
// [Log.Backup] copies the database while it is in use. [Restore] installs a copy, and
// [Check] verifies a file.
//
// Start reading at sqlite.go.
package sqlite
