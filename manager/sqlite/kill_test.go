package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
	"github.com/delegate-io/dlite/manager/sqlite"
)

const (
	victimPath = "DLITE_TEST_JOURNAL_VICTIM"
	victimName = "DLITE_TEST_JOURNAL_NAME"
)

// victim runs a journal in its own process, which the test kills. It prints each
// acknowledged command: its ID and its place in the order.
func victim(path string) {
	ctx := context.Background()
	log, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		die(err)
	}
	cfg := journaltest.Config(log)
	cfg.CompactAfter = 10 << 10
	j, err := journal.Open(ctx, cfg, journaltest.NewMachine())
	if err != nil {
		die(err)
	}
	var work sync.WaitGroup
	for g := range 16 {
		work.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s-%d-%d", os.Getenv(victimName), g, i)
				r, err := j.Do(ctx, journaltest.Command{ID: id})
				if err != nil {
					die(err)
				}
				fmt.Println(id, r.(journaltest.Receipt).Place)
			}
		})
	}
	work.Wait()
}

func die(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Rules Q4 and Q7: the test kills the process at random moments, while many goroutines
// send commands and the journal saves the state. Every acknowledged command is in the
// log, once and in its place.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	exe, err := os.Executable()
	require.NoError(t, err)
	acked := map[string]int{}
	for round := range 8 {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), victimPath+"="+path, victimName+"="+strconv.Itoa(round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		kill := 1 + rand.IntN(600)
		for n := 0; lines.Scan(); n++ { // also reads the lines that the process wrote before it died
			var id string
			var place int
			_, err := fmt.Sscan(lines.Text(), &id, &place)
			require.NoError(t, err)
			acked[id] = place
			if n == kill {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait())
		require.NoError(t, sqlite.Check(t.Context(), path))
	}
	j := journaltest.Open(t, opener(t, path))
	j.Has(t, acked)
	assert.Positive(t, j.Stats().Snapshot.Size, "the state was saved meanwhile")
}
