//go:build unix && !linux

package daemonset_test

// runDelegate is for tests of Linux.
func runDelegate(string) {}
