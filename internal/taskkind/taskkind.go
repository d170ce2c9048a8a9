// Package taskkind returns the role of a task type in a stage, for the packages that schedule, count or
// send tasks.
package taskkind

import (
	"strings"

	"github.com/delegate-io/dlite/task"
)

// Kind is the role of a task in a stage. An init opens a transaction and needs a
// stage slot. A cleanup ends the transaction and must not wait for a running step
// (rule P3).
type Kind int

const (
	// Standalone is a task that belongs to no transaction.
	Standalone Kind = iota
	// Init opens a transaction.
	Init
	// Execute runs a step in a transaction.
	Execute
	// Cleanup ends a transaction.
	Cleanup
)

// String returns the kind in lower case, for logs and metric labels.
func (k Kind) String() string {
	switch k {
	case Init:
		return "init"
	case Execute:
		return "execute"
	case Cleanup:
		return "cleanup"
	default:
		return "standalone"
	}
}

// Of returns the kind of a task type. Types that are not among the stage
// types of package task are Standalone. [task.TypeDliteVMCapacity] is Standalone: it
// opens no transaction.
func Of(taskType string) Kind {
	switch taskType {
	case task.TypeDockerInit, task.TypeDliteVMInit, task.TypeLocalInit, task.TypeVMInit,
		task.TypeKubernetesInit:
		return Init
	case task.TypeDockerExecute, task.TypeDliteVMExecute, task.TypeDliteVMExecuteV2, task.TypeLocalExecute,
		task.TypeVMExecute, task.TypeKubernetesExecute:
		return Execute
	case task.TypeDockerCleanup, task.TypeDliteVMCleanup, task.TypeDliteVMCleanupV2, task.TypeLocalCleanup,
		task.TypeVMCleanup, task.TypeKubernetesCleanup:
		return Cleanup
	default:
		return Standalone
	}
}

// Enveloped reports whether the payload of a task type is an envelope around the payload of a
// stage (docs/protocol.md, section 1).
func Enveloped(taskType string) bool { return strings.HasPrefix(taskType, "DLITE_CI_VM_") }
