package process

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const memoryVariable = "DLITE_TEST_MEMORY"

// Rule S5: a process with protected memory writes no core dump. The protection cannot be undone, so
// the test runs in another process.
func TestProtectMemory(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryHelper$")
	cmd.Env = append(os.Environ(), memoryVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestMemoryHelper(t *testing.T) {
	if os.Getenv(memoryVariable) == "" {
		return // this is not the other process
	}
	dumpable := func() int {
		got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, 1, dumpable())
	var before, after unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_CORE, &before))
	before.Cur = before.Max
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_CORE, &before))
	require.NoError(t, ProtectMemory())
	require.Zero(t, dumpable())
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_CORE, &after))
	require.Zero(t, after.Cur)
	require.Equal(t, before.Max, after.Max, "a step may raise the limit")
}
