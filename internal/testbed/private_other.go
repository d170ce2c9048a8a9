//go:build !linux

package testbed

import "testing"

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
