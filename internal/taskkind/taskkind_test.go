package taskkind_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/internal/taskkind"
)

// The task types of docs/protocol.md 1 and 2 and their kinds.
func TestKindsOfTheTaskTypesInUse(t *testing.T) {
	t.Parallel()
	for kind, types := range map[taskkind.Kind][]string{
		taskkind.Init:    {"CI_DOCKER_INITIALIZE_TASK", "DLITE_CI_VM_INITIALIZE_TASK", "local_init", "vm_init"},
		taskkind.Execute: {"CI_DOCKER_EXECUTE_TASK", "DLITE_CI_VM_EXECUTE_TASK", "DLITE_CI_VM_EXECUTE_TASK_V2", "local_execute", "vm_execute"},
		taskkind.Cleanup: {"CI_DOCKER_CLEANUP_TASK", "DLITE_CI_VM_CLEANUP_TASK", "DLITE_CI_VM_CLEANUP_TASK_V2", "local_cleanup", "vm_cleanup"},
		taskkind.Standalone: {"DLITE_CI_VM_CAPACITY_TASK", "secret/static", "secret/vault/fetch", "secret/vault/edit", "delegate_task",
			"", "LOCAL_INIT", "my_own_local_init"},
	} {
		for _, typ := range types {
			assert.Equal(t, kind, taskkind.Of(typ), typ)
		}
	}
	names := []string{}
	for _, k := range []taskkind.Kind{taskkind.Standalone, taskkind.Init, taskkind.Execute, taskkind.Cleanup, taskkind.Kind(99)} {
		names = append(names, k.String())
	}
	assert.Equal(t, []string{"standalone", "init", "execute", "cleanup", "standalone"}, names)
}
