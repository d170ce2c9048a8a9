//go:build !unix

package testbed

import "testing"

// PostgresServer is a real PostgreSQL. There is none on this platform.
type PostgresServer struct {
	// URL is the address for clients.
	URL string
}

// Postgres skips the test, or fails it if PostgreSQL is required.
func Postgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	Unavailable(tb, "postgres", "its server is started on Unix only")
	return nil
}

// Kill does nothing on this platform.
func (p *PostgresServer) Kill() {}

// Start does nothing on this platform.
func (p *PostgresServer) Start(testing.TB) {}
