package vm_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// builtAgent is built once for all tests; TestMain removes it.
var builtAgent struct {
	sync.Mutex
	path string
}

// agentProgram builds the agent, for machines that are processes.
func agentProgram(tb testing.TB) string {
	tb.Helper()
	if os.Geteuid() != 0 {
		testbed.Unavailable(tb, "root", "machines that are processes need root for their namespaces")
	}
	builtAgent.Lock()
	defer builtAgent.Unlock()
	if builtAgent.path == "" {
		program := testbed.BuildStatic(tb, "./examples/agent")
		dir, err := os.MkdirTemp("", "dlite-vm-")
		require.NoError(tb, err)
		builtAgent.path = filepath.Join(dir, "agent")
		require.NoError(tb, os.Rename(program, builtAgent.path))
	}
	return builtAgent.path
}

// removeShared removes the files that all tests share: the agent and the snapshot.
func removeShared() {
	if builtAgent.path != "" {
		_ = os.RemoveAll(filepath.Dir(builtAgent.path))
	}
	if sharedSnapshot.dir != "" {
		_ = os.RemoveAll(sharedSnapshot.dir)
	}
}
