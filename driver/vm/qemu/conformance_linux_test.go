package qemu_test

import (
	"testing"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	"github.com/delegate-io/dlite/driver/vm/qemu"
)

// Rule D6: the suite for providers, with machines that boot and machines that continue a
// snapshot.
func TestTheProviderPassesTheSuite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]qemu.Config{
		"starting": config(t), "from a snapshot": config(t, onDisk(t), withSnapshot),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vmtest.TestProvider(t, func(tb testing.TB) vm.Provider { return open(tb, c) })
			nothingLeft(t, c)
		})
	}
}
