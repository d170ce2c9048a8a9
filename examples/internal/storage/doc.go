// Package storage is the program for caches and uploads that the delegate and the agent contain. It
// stores files of a stage in a bucket of an S3-compatible service, and restores them.
//
// A driver knows it as a builtin plugin, and main runs it:
//
//	driver := host.Config{Builtins: storage.Builtins()}
//	program.Run(ctx, "agent", about, storage.Command())
//
// The bucket holds two kinds of objects. A part is a piece of an archive, and its name is its SHA-256
// checksum. The object of a key lists the parts of its archive. It is written last, with one request: a
// reader finds the old archive or the new one, and equal parts are stored once.
//
// Start reading at command.go.
package storage
