package task

// Task types of the stages that run on the delegate's own machine (protocol v1).
const (
	TypeDockerInit    = "CI_DOCKER_INITIALIZE_TASK"
	TypeDockerExecute = "CI_DOCKER_EXECUTE_TASK"
	TypeDockerCleanup = "CI_DOCKER_CLEANUP_TASK"
)

// Task types of the stages that run on a VM of a pool (protocol v1). Their
// payloads are envelopes around the payloads of package stage (docs/protocol.md,
// section 3). The V2 types mean the same as the types without the suffix.
const (
	TypeDliteVMInit      = "DLITE_CI_VM_INITIALIZE_TASK"
	TypeDliteVMExecute   = "DLITE_CI_VM_EXECUTE_TASK"
	TypeDliteVMExecuteV2 = "DLITE_CI_VM_EXECUTE_TASK_V2"
	TypeDliteVMCleanup   = "DLITE_CI_VM_CLEANUP_TASK"
	TypeDliteVMCleanupV2 = "DLITE_CI_VM_CLEANUP_TASK_V2"
	// TypeDliteVMCapacity reserves a machine for the init that follows.
	TypeDliteVMCapacity = "DLITE_CI_VM_CAPACITY_TASK"
)

// Task types of the stages of protocol v2. The kubernetes types are an
// extension.
const (
	TypeLocalInit    = "local_init"
	TypeLocalExecute = "local_execute"
	TypeLocalCleanup = "local_cleanup"

	TypeVMInit    = "vm_init"
	TypeVMExecute = "vm_execute"
	TypeVMCleanup = "vm_cleanup"

	TypeKubernetesInit    = "kubernetes_init"
	TypeKubernetesExecute = "kubernetes_execute"
	TypeKubernetesCleanup = "kubernetes_cleanup"
)

// Task types that belong to no stage (protocol v2).
const (
	// TypeSecretStatic resolves a secret whose value is in the payload.
	TypeSecretStatic = "secret/static"
	// TypeVaultFetch reads a secret from HashiCorp Vault.
	TypeVaultFetch = "secret/vault/fetch"
	// TypeVaultEdit changes a secret in HashiCorp Vault.
	TypeVaultEdit = "secret/vault/edit"
	// TypeDelegate carries a package for the legacy process beside the delegate.
	TypeDelegate = "delegate_task"
)
