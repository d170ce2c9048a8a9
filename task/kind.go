package task

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

// KindOf returns the kind of a task type. Types that are not among the stage
// types of this package are Standalone. [TypeDliteVMCapacity] is Standalone: it
// opens no transaction.
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
