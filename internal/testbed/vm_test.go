package testbed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

func TestAGuestIsMadeOnce(t *testing.T) {
	t.Parallel()
	first, second := testbed.VM(t), testbed.VM(t)
	require.Equal(t, first, second)
	for _, path := range []string{first.QEMU, first.Kernel, first.Initrd, first.DiskInitrd, first.Disk} {
		require.FileExists(t, path)
	}
}
