package podagent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rule D7: both versions of control groups have the number of processes that were killed
// because of the memory limit. A kill of a whole group (memory.oom.group) counts once.
func TestKillsForWantOfMemoryAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		want       int
	}{
		"version 2":             {"memory.events", "low 0\nhigh 4\nmax 72\noom 3\noom_kill 2\noom_group_kill 1\n", 2},
		"version 2, older":      {"memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n", 1},
		"version 2, none":       {"memory.events", "low 0\nhigh 0\nmax 9\noom 5\noom_kill 0\noom_group_kill 0\n", 0},
		"version 1":             {"memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n", 3},
		"version 1, older":      {"memory/memory.oom_control", "oom_kill_disable 1\nunder_oom 1\n", 0},
		"something else":        {"memory.events", "oom_kill\noom_kill many\n\n", 0},
		"no controller at hand": {"other", "oom_kill 5\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, c.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			require.Equal(t, c.want, oomKillsOf(root))
		})
	}
}
