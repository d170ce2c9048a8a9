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

// victimVariable makes a process of this test one that makes a machine, in the
// state folder that it names, until it is killed.
const victimVariable = "DLITE_QEMU_VICTIM"

// Rule T2: a process that is killed at any instant of making a machine, or the
// snapshot before it, leaves nothing that the next one does not find and destroy.
func TestNothingIsLeftOfAProcessThatWasKilled(t *testing.T) {
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
	// Without a snapshot the victim dies making it.
	for range 2 {
		kill(time.Duration(rand.Int64N(int64(3 * time.Second))))
	}
	destroy(t, p, create(t, p).id) // which makes it
	begin := time.Now()
	destroy(t, p, create(t, p).id)
	usual := time.Since(begin)
	for range 5 {
		kill(time.Duration(rand.Int64N(int64(usual * 3 / 2))))
	}
	create(t, p).healthy(t)
}

// Rule T2: the emulator of whoever was killed while it made a snapshot ends before the
// next one is made, and nothing that it wrote is left, also when it has become another
// user and the snapshot was another configuration's.
func TestTheMakerOfASnapshotDoesNotOutliveTheNext(t *testing.T) {
	if dir := os.Getenv(victimVariable); dir != "" {
		beVictim(t, dir, func(c *qemu.Config) { c.User = "nobody" })
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "only root may become another user")
	}
	c := config(t, withSnapshot)
	afterTheDeathOfAVictim(t, c.StateDir, func() {
		assert.Eventually(t, func() bool { return len(snapshotMakers(c.StateDir)) == 1 && areNobodys(c.StateDir) }, patience, time.Millisecond)
	})
	assert.Len(t, snapshotMakers(c.StateDir), 1, "it has ended by itself: there is nothing to prove")
	create(t, open(t, c)).healthy(t)
	assert.Empty(t, snapshotMakers(c.StateDir))
	left, err := filepath.Glob(filepath.Join(c.StateDir, "snapshots", "*.making"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// areNobodys reports whether all emulators that use dir have become another user.
func areNobodys(dir string) bool {
	const nobody = 65534
	for _, file := range testbed.ProcessesWith("cmdline", dir) {
		info, err := os.Stat(filepath.Dir(file))
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != nobody {
			return false
		}
	}
	return true
}

// snapshotMakers are the processes that are making a snapshot in dir.
func snapshotMakers(dir string) []string {
	return slices.DeleteFunc(testbed.CommandLines(dir), func(line string) bool { return !strings.Contains(line, "dlite-snapshot-") })
}

// afterTheDeathOfAVictim kills a victim when wait has returned, after it has begun,
// and returns the ids that it has used.
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

// beVictim makes machines until it is killed.
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
