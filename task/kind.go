package task

// Kind tells what a task means for the life of a stage, so that a delegate and
// a manager treat it alike: an init opens a transaction and needs a stage slot,
// a cleanup ends one and must never wait for a running step (SPEC P3).
type Kind int

const (
	// Standalone is any task that belongs to no transaction.
	Standalone Kind = iota
	// Init opens a transaction.
	Init
	// Execute runs a step in a transaction.
	Execute
	// Cleanup ends a transaction.
	Cleanup
)

// String is the kind in lower case, for logs and metric labels.
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

// KindOf classifies the task types that the protocols define (PROTOCOL 1 and
// 2), and kubernetes_*, which are ours. Every other type is Standalone, also
// DLITE_CI_VM_CAPACITY_TASK, which belongs to a stage but begins nothing of it.
func KindOf(taskType string) Kind {
	switch taskType {
	case TypeDockerInit, TypeDliteVMInit, TypeLocalInit, TypeVMInit,
		TypeKubernetesInit:
		return Init
	case TypeDockerExecute, TypeDliteVMExecute, TypeDliteVMExecuteV2, TypeLocalExecute,
		TypeVMExecute, TypeKubernetesExecute:
		return Execute
	case TypeDockerCleanup, TypeDliteVMCleanup, TypeDliteVMCleanupV2, TypeLocalCleanup,
		TypeVMCleanup, TypeKubernetesCleanup:
		return Cleanup
	default:
		return Standalone
	}
}
