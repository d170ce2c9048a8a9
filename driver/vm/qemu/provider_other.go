//go:build !linux

package qemu

import (
	"errors"

	"github.com/delegate-io/dlite/driver/vm"
)

// New returns an error: machines with QEMU need Linux.
func New(Config) (vm.Provider, error) {
	return nil, errors.New("machines with QEMU need a delegate on Linux")
}
