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

// New fails.
func New(Config) (*Provider, error) { return nil, errLinux }

// Name is "qemu".
func (*Provider) Name() string { return "qemu" }

// Create fails.
func (*Provider) Create(context.Context, vm.Spec) (vm.Machine, error) { return vm.Machine{}, errLinux }

// Destroy fails.
func (*Provider) Destroy(context.Context, string) error { return errLinux }

// Alive fails.
func (*Provider) Alive(context.Context, string) (bool, error) { return false, errLinux }

// List fails.
func (*Provider) List(context.Context, string) ([]string, error) { return nil, errLinux }
