//go:build !linux

package qemu

import (
	"context"
	"errors"

	"github.com/delegate-io/dlite/driver/vm"
)

var errLinux = errors.New("machines with QEMU need a delegate on Linux")

// Provider needs Linux.
type Provider struct{}

// New returns an error.
func New(Config) (*Provider, error) { return nil, errLinux }

// Name returns "qemu".
func (*Provider) Name() string { return "qemu" }

// Create returns an error.
func (*Provider) Create(context.Context, vm.Spec) (vm.Machine, error) { return vm.Machine{}, errLinux }

// Destroy returns an error.
func (*Provider) Destroy(context.Context, string) error { return errLinux }

// Alive returns an error.
func (*Provider) Alive(context.Context, string) (bool, error) { return false, errLinux }

// List returns an error.
func (*Provider) List(context.Context, string) ([]string, error) { return nil, errLinux }
