//go:build !linux

package steps

// defaultMemoryDir returns "": only Linux has a memory file system that every user can write to.
func defaultMemoryDir() string { return "" }
