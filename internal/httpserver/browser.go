package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// RefuseWebPages refuses the requests by which a web page, in a browser on this machine,
// could use a server without authentication:
//
//   - A page can let its own name resolve to a loopback address. Requests to a loopback
//     address therefore need a Host that is localhost or a loopback address.
//   - A page can send requests to another origin. Those with a method that may change
//     something are refused; the browser hides the answers of the others from the page.
//
// The answer is 403.
func RefuseWebPages(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if isLoopback(local) && !namesLoopback(r.Host) {
			http.Error(w, "the Host of the request is not this machine: use localhost or 127.0.0.1", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func namesLoopback(hostPort string) bool {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
