package task_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/task"
)

func TestTaskTypesHaveTheNamesOfTheProtocols(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		task.TypeDockerInit: "CI_DOCKER_INITIALIZE_TASK", task.TypeDockerExecute: "CI_DOCKER_EXECUTE_TASK",
		task.TypeDockerCleanup:  "CI_DOCKER_CLEANUP_TASK",
		task.TypeDliteVMInit:    "DLITE_CI_VM_INITIALIZE_TASK",
		task.TypeDliteVMExecute: "DLITE_CI_VM_EXECUTE_TASK", task.TypeDliteVMExecuteV2: "DLITE_CI_VM_EXECUTE_TASK_V2",
		task.TypeDliteVMCleanup: "DLITE_CI_VM_CLEANUP_TASK", task.TypeDliteVMCleanupV2: "DLITE_CI_VM_CLEANUP_TASK_V2",
		task.TypeDliteVMCapacity: "DLITE_CI_VM_CAPACITY_TASK",
		task.TypeLocalInit:       "local_init", task.TypeLocalExecute: "local_execute", task.TypeLocalCleanup: "local_cleanup",
		task.TypeVMInit: "vm_init", task.TypeVMExecute: "vm_execute", task.TypeVMCleanup: "vm_cleanup",
		task.TypeKubernetesInit: "kubernetes_init", task.TypeKubernetesExecute: "kubernetes_execute",
		task.TypeKubernetesCleanup: "kubernetes_cleanup",
		task.TypeSecretStatic:      "secret/static", task.TypeVaultFetch: "secret/vault/fetch",
		task.TypeVaultEdit: "secret/vault/edit", task.TypeDelegate: "delegate_task",
	} {
		assert.Equal(t, want, got)
	}
}
