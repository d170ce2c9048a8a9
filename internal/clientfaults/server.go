package clientfaults

import "github.com/delegate-io/dlite/client/clienttest"

// Server is a manager for tests whose requests meet the injected faults.
type Server struct {
	*clienttest.Server
	*Faults
}

// NewServer starts a server whose faults have the seed 1, see [New]. The faults are its
// middleware. The caller closes it.
func NewServer(cfg clienttest.Config) *Server {
	f := New(1)
	cfg.Middleware = f.Wrap
	return &Server{Server: cfg.NewServer(), Faults: f}
}

// Close releases the held requests and closes the server. Close may be called
// more than once.
func (s *Server) Close() {
	s.Release()
	s.Server.Close()
}
