package host

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// A driver that has waited for a command of git does not search the machine for its processes, also if the cleanup
// has a grace: a process outside continues, although it carries the marker of the command. A later driver searches.
func TestACleanupSearchesNoProcessesOfAGitThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"in this process": true, "in an earlier process": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(Config{WorkDir: t.TempDir(), MemoryDir: t.TempDir(), Trusted: true, Grace: time.Minute})
			require.NoError(t, err)
			git := driver.Resource{Kind: steps.KindProcess, ID: t.Name(), Data: []byte(`{"pid":1}`)}
			if ended {
				d.ended.Store(git.ID, true)
			}
			marked := exec.CommandContext(t.Context(), "cat")
			marked.Env = []string{process.MarkerVariable + "=" + git.ID}
			in, err := marked.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, marked.Start())
			left, err := d.Cleanup(t.Context(), []driver.Resource{git})
			require.NoError(t, err)
			require.Empty(t, left)
			require.NoError(t, in.Close())
			if ended {
				require.NoError(t, marked.Wait(), "the cleanup has ended another process")
			} else {
				require.Error(t, marked.Wait(), "the cleanup ends processes that an earlier delegate has left")
			}
			require.NoError(t, d.Close())
		})
	}
}
