package vm_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/internal/testbed"
)

// killedVariable turns a process of this test into the killed test run.
const killedVariable = "DLITE_VM_KILLED_RUN"

// Machines survive a delegate. They must not survive a killed test run, and neither must the
// delegates that it started.
func TestAKilledTestRunLeavesNothing(t *testing.T) {
	if os.Getenv(killedVariable) != "" {
		beKilledRun(t)
	}
	t.Parallel()
	agentProgram(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), killedVariable+"=1", "TMPDIR="+t.TempDir())
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var dirs []string
	for lines := bufio.NewScanner(output); len(dirs) < 2 && lines.Scan(); {
		if dir, ok := strings.CutPrefix(lines.Text(), "at work in "); ok {
			dirs = append(dirs, dir)
		}
	}
	machines := 0
	for _, dir := range dirs {
		machines += len(testbed.ProcessesWith("cmdline", dir))
	}
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // killed is an error
	require.Len(t, dirs, 2)
	require.Greater(t, machines, 1)
	for _, dir := range dirs {
		require.Eventually(t, func() bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err) && len(testbed.ProcessesWith("cmdline", dir))+len(testbed.ProcessesWith("environ", dir)) == 0
		}, time.Minute, 10*time.Millisecond, "%s is not removed", dir)
	}
}

// beKilledRun starts a pool, and a delegate in a separate process that works without end.
func beKilledRun(t *testing.T) {
	s := newSite(t, agentProgram(t), vm.PoolConfig{Min: 1, Max: 1})
	d := newDriver(t, []*vm.Pool{s.pool})
	begin(t, d)
	_, _ = os.Stdout.WriteString("at work in " + s.dir + "\n")

	scene := newScene(t, 0)
	scene.start("", 0, 0)
	scene.work()
	_, _ = os.Stdout.WriteString("at work in " + scene.Dir + "\n")
	select {}
}
