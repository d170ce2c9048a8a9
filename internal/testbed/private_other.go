//go:build !linux

package testbed

import (
	"errors"
	"testing"
)

// Private is an engine for one test. It exists only on Linux.
type Private struct {
	*Engine
	// Host is the engine's address in the form of DOCKER_HOST.
	Host string
}

// PrivateEngine ends the test, see [Unavailable].
func PrivateEngine(tb testing.TB, _ ...string) *Private {
	tb.Helper()
	Unavailable(tb, "docker", "an engine of its own can be started on Linux alone")
	return nil
}

// Start does nothing.
func (p *Private) Start() {}

// Launch does nothing.
func (p *Private) Launch() {}

// Stop does nothing.
func (p *Private) Stop() {}

// Kill does nothing.
func (p *Private) Kill() {}

// ErrRuined is never returned.
var ErrRuined = errors.New("the engine cannot be started any more")

// Await returns nil.
func (p *Private) Await() error { return nil }

// Interfaces returns nil.
func (p *Private) Interfaces() []string { return nil }

// Mounts returns nil.
func (p *Private) Mounts() []string { return nil }

// Rules returns an empty string.
func (p *Private) Rules() string { return "" }

// Cgroups returns nil.
func (p *Private) Cgroups() map[string][]string { return nil }
