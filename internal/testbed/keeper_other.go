//go:build !linux

package testbed

import "testing"

// Keep does nothing, because only tests on Linux start processes that survive them.
func Keep(testing.TB, string) {}

// KeepToTheEnd does nothing.
func KeepToTheEnd(testing.TB, string) {}
