package endtoend_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// Rule L2: the log service is away from before a step until after the cleanup of its stage, and
// the delegate is killed meanwhile. The next delegate delivers the whole log.
func TestALogOutlivesAnOutageAndAKillOfTheDelegate(t *testing.T) {
	t.Parallel()
	s := newRig(t, rigConfig{})
	kill := s.startDelegate(t)
	s.logsAway.Store(true)
	begun := time.Now()
	st := s.run(t, "outage", `{"steps": [{"id": "print", "data": {"run": {"entrypoint": ["sh", "-c"], "commands": ["seq 1 20000"]}}}]}`)
	t.Logf("the stage took %s", time.Since(begun))
	require.Equal(t, api.Success, st.Status, st.Error)
	require.Equal(t, api.Success, st.Cleanup.Status)
	kill()
	kept, err := filepath.Glob(filepath.Join(s.dir, "ledger", "logs", "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, file := range kept {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"out":"20000\n"`)
	}

	s.startDelegate(t)
	s.logsAway.Store(false)
	var want strings.Builder
	for i := range 20000 {
		_, _ = fmt.Fprintln(&want, i+1)
	}
	got := s.awaitLog(t, st.Steps[0].LogKey)
	assert.True(t, want.String() == got, "got %d bytes of %d", len(got), want.Len())
	assert.Eventually(t, func() bool {
		kept, err = filepath.Glob(filepath.Join(s.dir, "ledger", "logs", "*-*"))
		return err == nil && len(kept) == 0
	}, time.Minute, 50*time.Millisecond, "the files are left")
}
