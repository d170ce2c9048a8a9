//go:build !linux

package main

// keepMemory does nothing here: whether a crash leaves a core dump is for the
// system's settings to say.
func keepMemory() error { return nil }
