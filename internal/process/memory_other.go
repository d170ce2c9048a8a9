//go:build !linux

package process

// KeepMemory does nothing here: whether a crash leaves a core dump is for the
// system's settings to say.
func KeepMemory() error { return nil }
