package qemu_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// killedVariable turns a process of this test into the killed test run.
const killedVariable = "DLITE_QEMU_KILLED_RUN"

// Machines survive the process that created them. A killed test run must leave no emulator
// and no directory.
func TestAKilledTestRunLeavesNoMachine(t *testing.T) {
	if os.Getenv(killedVariable) != "" {
		c := config(t)
		g := create(t, open(t, c))
		g.healthy(t)
		_, _ = os.Stdout.WriteString("made " + g.id + " " + c.StateDir + "\n")
		select {}
	}
	t.Parallel()
	config(t) // builds the guest, or ends the test
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), killedVariable+"=1", "TMPDIR="+t.TempDir())
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var made []string
	for lines := bufio.NewScanner(output); len(made) == 0 && lines.Scan(); {
		if line, ok := strings.CutPrefix(lines.Text(), "made "); ok {
			made = strings.Fields(line)
		}
	}
	running := len(made) == 2 && len(testbed.CommandLines(made[0])) > 0
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // killed is an error
	require.True(t, running, "%q", made)
	require.Eventually(t, func() bool {
		_, err := os.Stat(made[1])
		return os.IsNotExist(err) && len(testbed.CommandLines(made[0])) == 0
	}, patience, 10*time.Millisecond, "the machine, or its folder, is left")
}
