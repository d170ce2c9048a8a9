package process

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const parentVariable = "DLITE_TEST_PARENT"

// The processes of a delegate that is killed die with it.
func TestAProcessDiesWithTheDelegate(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestParentHelper$")
	parent.Env = append(os.Environ(), parentVariable+"=1")
	parent.Stdout = w
	require.NoError(t, parent.Start())
	require.NoError(t, w.Close())
	out := bufio.NewReader(r)
	require.Equal(t, "up\n", readLine(t, out))
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	_, err = io.ReadAll(out) // ends when no process has the pipe open
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

func TestParentHelper(t *testing.T) {
	if os.Getenv(parentVariable) == "" {
		return // this is not the delegate
	}
	g, err := Start(t.Context(), &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "echo up; exec sleep 600"}, Stdout: os.Stdout}, Options{})
	require.NoError(t, err)
	<-g.Exited()
}
