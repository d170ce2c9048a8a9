//go:build !linux

package host

import (
	"context"
	"errors"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// supervision is always nil: only Linux has supervisors.
type supervision struct{}

var errUnsupervised = errors.New("this system has no supervisors")

func newSupervision(*steps.Driver) (*supervision, error) {
	return nil, errors.New("this system has no namespaces")
}

func (*supervision) close() error { return nil }

func (*supervision) plan(*steps.Transaction) *steps.Supervisor { return nil }

// turns is empty: nothing starts a supervisor.
type turns struct{}

func (r *run) runSupervised(context.Context) (*driver.Result, error) { return nil, errUnsupervised }

func (r *run) reattach(context.Context, driver.Resource) (*driver.Result, error) {
	return nil, errUnsupervised
}

func (c *cleanup) endSupervised(context.Context, driver.Resource) {}

func (c *cleanup) removeSupervisor(context.Context, driver.Resource) error { return errUnsupervised }

func (c *cleanup) removeSupervised(context.Context, supervisedStep, string) error {
	return errUnsupervised
}
