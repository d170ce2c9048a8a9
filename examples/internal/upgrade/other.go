//go:build !unix

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Process has no part in an upgrade on this system.
type Process struct{}

// Begin does nothing: on this system a running program cannot be replaced.
func Begin(string) *Process { return &Process{} }

// Trial reports false.
func (*Process) Trial() bool { return false }

// Prove does nothing.
func (*Process) Prove(context.Context, <-chan struct{}, func()) error { return nil }

func die() {}

func (place) checkOwner() error { return nil }

func (p place) lockUpgrades() (unlock func(), err error) {
	f, err := os.OpenFile(p.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, p.explain(err)
	}
	return func() { _ = f.Close() }, nil
}

// Replace gives a staged program its place, while the program may run. This system cannot do that in one step: after a
// crash between the two renames the place is empty, and the file with the suffix .previous is the program.
func Replace(version string) error {
	p, err := ownPlace()
	if err != nil {
		return err
	}
	j, err := p.read()
	switch {
	case err != nil:
		return err
	case j == nil || j.Phase != Staged || j.Version != version:
		return errors.New("no upgrade is staged")
	}
	if err := ignoreMissing(os.Remove(p.previous())); err != nil {
		return fmt.Errorf("remove the program before the last one, which may still run: %w", err)
	}
	if err := os.Rename(p.program, p.previous()); err != nil {
		return fmt.Errorf("keep the previous program: %w", err)
	}
	if err := os.Rename(p.next(), p.program); err != nil {
		return errors.Join(fmt.Errorf("replace the program: %w", err), os.Rename(p.previous(), p.program))
	}
	return p.enter(j, Done, "")
}

func (place) writable() bool { return true } // there is no other place

func (place) exec() error { return errors.ErrUnsupported }

func (place) again() error { return errors.ErrUnsupported }
