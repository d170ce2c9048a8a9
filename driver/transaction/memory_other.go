//go:build !linux

package transaction

const defaultMemory = "/dev/shm"

// inMemory returns false, because this system has no known file system in memory.
func inMemory(string) bool { return false }

// makePrivate is not needed here.
func makePrivate(string) error { return nil }
