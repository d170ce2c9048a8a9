package connector

import (
	"net"
	"net/http"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/task/connector/internal/status"
)

// Routes returns the handlers by the types of their tasks:
//
//	connector/test  tests a connector
//	git/status      reports the status of a commit to a Git provider, with one request
//
// Base has the proxy and the CAs of the delegate; nil means [http.DefaultTransport]. Put the handlers behind the
// middleware that resolves secrets, which gives them the values to mask. They are safe for concurrent use.
//
// A test that fails is a successful task: its result has ok false. So is a status that the provider refuses, and the
// data of the response says why. A handler returns an error only for data that is not valid.
func Routes(base *http.Transport) map[string]http.Handler {
	if base == nil {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	return map[string]http.Handler{
		typeTest:          (&tester{base, net.DefaultResolver}).handler(),
		source.TypeStatus: status.Handler(base),
	}
}
