//go:build unix && !linux

package upgrade

import "syscall"

// diesWithParent is nil: only the descriptor ends the child.
func diesWithParent() *syscall.SysProcAttr { return nil }

// reapInherited does nothing: only on Linux do children outlive the delegate.
func reapInherited() {}
