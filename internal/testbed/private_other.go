//go:build !linux

package testbed

import (
	"errors"
	"testing"
)

// Private is an engine that belongs to one test. There is none but on Linux.
type Private struct {
	*Engine
	// Host is the engine's address, as DOCKER_HOST takes it.
	Host string
}

// PrivateEngine ends the test, see [Unavailable].
func PrivateEngine(tb testing.TB, _ ...string) *Private {
	tb.Helper()
	Unavailable(tb, "docker", "an engine of its own can be started on Linux alone")
	return nil
}

// Start has nothing to start.
func (p *Private) Start() {}

// Launch has nothing to start.
func (p *Private) Launch() {}

// Stop has nothing to stop.
func (p *Private) Stop() {}

// Kill has nothing to kill.
func (p *Private) Kill() {}

// ErrRuined is never returned.
var ErrRuined = errors.New("the engine cannot be started any more")

// Await has nothing to wait for.
func (p *Private) Await() error { return nil }

// Interfaces are none.
func (p *Private) Interfaces() []string { return nil }

// Mounts are none.
func (p *Private) Mounts() []string { return nil }

// Rules are none.
func (p *Private) Rules() string { return "" }

// Cgroups are none.
func (p *Private) Cgroups() map[string][]string { return nil }
