//go:build !linux

package sealed

// DefaultMemory is the directory for files in memory that every Linux system has.
const DefaultMemory = "/dev/shm"

// InMemory returns false, because this system has no known file system in memory.
func InMemory(string) bool { return false }

// MakePrivate is not needed here.
func MakePrivate(string) error { return nil }
