package connector

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/connector/internal/sshtest"
)

// fullDisk returns a directory on a disk without free space.
func fullDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		testbed.Unavailable(t, "mounts", "a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "docker"), 0o700))
	err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600)
	require.ErrorIs(t, err, unix.ENOSPC)
	return dir
}

// A registry whose disk is full takes no push, and the test says so (rule G3).
func TestARegistryWithAFullDiskIsNamed(t *testing.T) {
	t.Parallel()
	c := connector{Kind: kindRegistry, Address: newRegistry(t, fullDisk(t), false), Options: map[string]string{optionRepository: "team/app", optionAccess: "write"}}
	f := failed(t, try(t, c))
	assert.Equal(t, stepAnswer, f.Name)
	assert.Contains(t, f.Message, "has no free space (500)")
	assert.Contains(t, f.Remedy, "extend its disk")
}

// A delegate whose own disk is full says so (rule G3).
func TestADelegateWithAFullDiskIsNamed(t *testing.T) {
	t.Setenv("TMPDIR", fullDisk(t))
	_, key := sshtest.NewKey(t)
	f := failed(t, try(t, connector{Kind: kindGit, Address: "ssh://git@127.0.0.1/app", Secrets: map[string]string{secretKey: key}, Options: map[string]string{optionKnownHosts: "127.0.0.1 ssh-ed25519 AAAA"}}))
	assert.Equal(t, "the disk of the delegate is full", f.Message)
}
