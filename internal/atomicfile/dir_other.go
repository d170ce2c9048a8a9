//go:build !unix

package atomicfile

// SyncDir does nothing: NTFS logs a new name with the file, and a directory cannot be flushed.
func SyncDir(string) error { return nil }
