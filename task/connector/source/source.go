package source

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// Config configures a [Sources]. The zero value is valid.
type Config struct {
	// Transport makes the requests over HTTP. All polls share its connections. Defaults to [http.DefaultTransport].
	Transport http.RoundTripper
	// KnownHosts is the file with the keys of SSH servers, for sources whose configuration has none. Defaults to
	// .ssh/known_hosts in the home directory of the delegate's user.
	KnownHosts string
	// Secrets resolves the references to secrets in configurations. Values are kept in memory for 5 minutes.
	Secrets secrets.ResolverConfig
	// Parallel is the number of polls at a time. Defaults to 16.
	Parallel int
}

// Sources polls Git repositories and image registries for new commits, tags and digests. It is safe for concurrent use.
type Sources struct {
	transport  http.RoundTripper
	knownHosts string
	secrets    secrets.ResolverConfig
	resolved   *lru[*resolved]
	places     chan struct{} // for the polls at a time
	ways       *lru[gitWay]
	registries *lru[*repository]
	ssh        *sshPool
	requests   atomic.Int64
}

// mostRemembered bounds the servers' ways and tokens that are remembered.
const mostRemembered = 20_000

// New returns a Sources. It makes no call. Call Close after the last poll.
func New(cfg Config) *Sources {
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 16
	}
	return &Sources{
		transport: cfg.Transport, knownHosts: cfg.KnownHosts, secrets: cfg.Secrets, resolved: newLRU[*resolved](mostRemembered), places: make(chan struct{}, cfg.Parallel),
		ways: newLRU[gitWay](mostRemembered), registries: newLRU[*repository](mostRemembered), ssh: newSSHPool(),
	}
}

// Close closes the connections to SSH servers. It waits for no poll.
func (s *Sources) Close() { s.ssh.close() }

// Handlers returns the handlers by the types of their tasks: source/git and source/registry.
func (s *Sources) Handlers() map[string]task.Perpetual {
	return map[string]task.Perpetual{
		source.TypeGit:      polled(s, s.pollGit),
		source.TypeRegistry: polled(s, s.pollRegistry),
	}
}

// enter waits for a place.
func (s *Sources) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.places <- struct{}{}:
		return func() { <-s.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hostOf returns the host of an address for messages: the rest may have credentials.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return "the address"
}

// withoutURL returns the reason of an error of net/http: its text has the whole URL.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
