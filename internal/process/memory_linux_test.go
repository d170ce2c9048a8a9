package process

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const memoryVariable = "DLITE_TEST_MEMORY"

// SPEC S5: a process that keeps its memory writes no core dump, whichever way one
// is asked for. What it is for stays with the process, and thus in one of its own.
func TestAProcessKeepsItsMemory(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryHelper$")
	cmd.Env = append(os.Environ(), memoryVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestMemoryHelper(t *testing.T) {
	if os.Getenv(memoryVariable) == "" {
		return // it is no test, but a process that keeps its memory
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
