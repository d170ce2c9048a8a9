package httpserver

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// LimitConnections returns a function that limits the connections of listeners. They
// close a new connection if all of them together have most connections already, or
// mostPerAddress of the same remote address. 0 means no limit.
func LimitConnections(most, mostPerAddress int) func(net.Listener) net.Listener {
	shared := &connections{most: most, each: mostPerAddress, open: map[string]int{}}
	return func(l net.Listener) net.Listener { return &listener{l, shared} }
}

type listener struct {
	net.Listener
	*connections
}

type connections struct {
	most, each int

	mu    sync.Mutex // guards the following fields
	open  map[string]int
	total int
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := c.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
		if l.admit(address) {
			return &conn{Conn: c, release: sync.OnceFunc(func() { l.release(address) })}, nil
		}
		_ = c.Close()
	}
}

func (l *connections) admit(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 0 && l.total >= l.most || l.each > 0 && l.open[address] >= l.each {
		return false
	}
	l.total++
	l.open[address]++
	return true
}

func (l *connections) release(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
}

type conn struct {
	net.Conn
	release func()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.release()
	return c.Conn.Close()
}

// LimitRequests returns middleware that answers 429 if most requests with the same token
// run already. headers name the headers that may have a token. Requests without a token
// share one limit for each remote address. 0 means no limit.
func LimitRequests(most int, headers ...string) func(http.Handler) http.Handler {
	l := &requests{most: most, running: map[[sha256.Size]byte]int{}}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			owner := ownerOf(r, headers)
			if !l.admit(owner) {
				w.Header().Set("Retry-After", "1")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = fmt.Fprintf(w, "{\"error_msg\":\"%d requests with this token run already: repeat the request later\"}\n", most)
				return
			}
			defer l.release(owner)
			next.ServeHTTP(w, r)
		})
	}
}

type requests struct {
	most int

	mu      sync.Mutex // guards running
	running map[[sha256.Size]byte]int
}

// ownerOf returns a hash: the text of a token must not stay in memory.
func ownerOf(r *http.Request, headers []string) [sha256.Size]byte {
	for _, name := range headers {
		if token := r.Header.Get(name); token != "" {
			return sha256.Sum256([]byte("token " + token))
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return sha256.Sum256([]byte("address " + host))
}

func (l *requests) admit(owner [sha256.Size]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 0 && l.running[owner] >= l.most {
		return false
	}
	l.running[owner]++
	return true
}

func (l *requests) release(owner [sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[owner]--; l.running[owner] == 0 {
		delete(l.running, owner)
	}
}
