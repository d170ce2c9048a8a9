//go:build !linux

package process

// ProtectMemory does nothing: the settings of the system decide about core dumps.
func ProtectMemory() error { return nil }

func dropAmbient() {}
