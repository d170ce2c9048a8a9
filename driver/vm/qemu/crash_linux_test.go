package qemu_test

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
)

// victimVariable turns a process of this test into a victim: it creates machines in the state
// directory that the variable names, until it is killed.
const victimVariable = "DLITE_QEMU_VICTIM"

// Rule T2: a process is killed at any time while it creates a machine or the snapshot. The
// next process finds and destroys all remains.
func TestAKilledProcessLeavesNothing(t *testing.T) {
	if dir := os.Getenv(victimVariable); dir != "" {
		beVictim(t, dir, withSnapshot)
		return
	}
	t.Parallel()
	c := config(t, withSnapshot)
	p := open(t, c)
	kill := func(after time.Duration) {
		ids := afterTheDeathOfAVictim(t, c.StateDir, func() {
			timer := time.NewTimer(after)
			defer timer.Stop()
			<-timer.C
		})
		for _, id := range list(t, p, owner) {
			ids = append(ids, id)
			destroy(t, p, id)
		}
		nothingLeft(t, c, ids...)
		assert.Eventually(t, func() bool { return len(snapshotMakers(c.StateDir)) == 0 }, patience, 10*time.Millisecond, "after %v", after)
	}
	// Without a snapshot the victim is killed while it creates one.
	for range 2 {
		kill(time.Duration(rand.Int64N(int64(3 * time.Second))))
	}
	destroy(t, p, create(t, p).id) // this creates the snapshot
	begin := time.Now()
	destroy(t, p, create(t, p).id)
	usual := time.Since(begin)
	for range 5 {
		kill(time.Duration(rand.Int64N(int64(usual * 3 / 2))))
	}
	create(t, p).healthy(t)
}

// Rule T2: a process is killed while it creates a snapshot. Its emulator ends before the next
// process creates one, and none of its files remain. That also holds if the emulator changed
// its user, and if the snapshot was of another configuration.
func TestTheEmulatorOfAKilledSnapshotEndsBeforeTheNext(t *testing.T) {
	if dir := os.Getenv(victimVariable); dir != "" {
		beVictim(t, dir, func(c *qemu.Config) { c.User = "nobody" })
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "only root may change the user")
	}
	c := config(t, withSnapshot)
	afterTheDeathOfAVictim(t, c.StateDir, func() {
		assert.Eventually(t, func() bool { return len(snapshotMakers(c.StateDir)) == 1 && haveChangedUser(c.StateDir) }, patience, time.Millisecond)
	})
	assert.Len(t, snapshotMakers(c.StateDir), 1, "it ended before the kill: the test proves nothing")
	create(t, open(t, c)).healthy(t)
	assert.Empty(t, snapshotMakers(c.StateDir))
	left, err := filepath.Glob(filepath.Join(c.StateDir, "snapshots", "*.making"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// haveChangedUser reports whether all emulators that use dir have changed their user.
func haveChangedUser(dir string) bool {
	const nobody = 65534
	for _, file := range testbed.ProcessesWith("cmdline", dir) {
		info, err := os.Stat(filepath.Dir(file))
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != nobody {
			return false
		}
	}
	return true
}

// snapshotMakers returns the processes that create a snapshot in dir.
func snapshotMakers(dir string) []string {
	return slices.DeleteFunc(testbed.CommandLines(dir), func(line string) bool { return !strings.Contains(line, "dlite-snapshot-") })
}

// afterTheDeathOfAVictim starts a victim, kills it when wait returns, and returns the ids
// that it used.
func afterTheDeathOfAVictim(t *testing.T, dir string, wait func()) []string {
	t.Helper()
	says, theirs, err := os.Pipe()
	require.NoError(t, err)
	defer says.Close() //nolint:errcheck // it is only read
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), victimVariable+"="+dir, "TMPDIR="+t.TempDir()), []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close()
	require.NoError(t, err)
	lines := bufio.NewReader(says)
	first, err := lines.ReadString('\n')
	if err == nil {
		wait()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	require.NoError(t, err, "the victim did not begin")
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	return strings.Fields(first + string(rest))
}

// beVictim creates machines until it is killed.
func beVictim(t *testing.T, dir string, change func(*qemu.Config)) {
	const toldFile = 3
	tell := os.NewFile(toldFile, "tell")
	p := open(t, config(t, withSnapshot, change, func(c *qemu.Config) { c.StateDir = dir }))
	for {
		id := newID()
		_, err := tell.WriteString(id + "\n")
		require.NoError(t, err)
		_, err = p.Create(context.Background(), spec(id, newBoot(t)))
		require.NoError(t, err)
	}
}
