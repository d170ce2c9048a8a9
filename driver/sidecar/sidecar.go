package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/task"
)

// defaultURL is where a legacy process listens (docs/protocol.md, section 2).
const defaultURL = "http://localhost:3461"

// Config configures a [Sidecar]. The zero value forwards [task.TypeDelegate] to
// http://localhost:3461 and starts no process.
type Config struct {
	// URL receives the tasks by POST: http, https, or unix:///path/of/the.socket.
	// Empty means http://localhost:3461. The sidecar uses no proxy and follows no redirect.
	URL string

	// Types are the forwarded task types, in addition to [task.TypeDelegate].
	Types []string

	// Wait limits the time that a task waits while the sidecar cannot be reached. 0
	// means 30 s; with a negative value tasks do not wait.
	Wait time.Duration

	// Command is the command line that [Sidecar.Run] starts. If it is empty, Run starts
	// nothing. The process inherits the basic variables such as PATH and HOME, and no
	// other variable of the delegate.
	Command []string
	// Env are variables of the process, as NAME=value.
	Env []string
	// Dir is the working directory of the process. Empty means that of the delegate.
	Dir string

	// Health is the path of the health check: a healthy sidecar answers with a 2xx
	// status. If it is empty, a healthy sidecar accepts connections.
	Health string
	// HealthInterval is the time between two health checks. A check fails after 5 s. 0
	// means 10 s.
	HealthInterval time.Duration
	// HealthFailures is the number of failed checks in a row after which the process is
	// restarted. 0 means 3.
	HealthFailures int
	// StartTimeout limits the time until the first successful check. 0 means 2 min.
	StartTimeout time.Duration

	// Pause is the time between the end of a process and its restart. It doubles each
	// time, up to MaxPause, until a process has been healthy for MaxPause. 0 means 1 s
	// for Pause and 1 min for MaxPause.
	Pause, MaxPause time.Duration

	// Grace is the time between SIGTERM and SIGKILL. 0 means 10 s.
	Grace time.Duration

	// Log receives the output of the process, line by line at info level, and events
	// such as starts and ends. The zero value logs nothing.
	Log zerolog.Logger
}

func (c *Config) setDefaults() {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.Wait, 30*time.Second)
	set(&c.HealthInterval, 10*time.Second)
	set(&c.StartTimeout, 2*time.Minute)
	set(&c.Pause, time.Second)
	set(&c.MaxPause, time.Minute)
	set(&c.Grace, 10*time.Second)
	if c.HealthFailures == 0 {
		c.HealthFailures = 3
	}
	if c.URL == "" {
		c.URL = defaultURL
	}
}

// Sidecar forwards tasks. It is safe for concurrent use.
type Sidecar struct {
	cfg     Config
	url     string // URL of requests
	network string // network to dial
	address string
	program string
	client  *http.Client
	state   state
}

// New creates a sidecar and starts nothing. It fails if the URL, a task type or a variable
// is not valid, if a time other than Wait is negative, or if the command does not exist.
func New(cfg Config) (*Sidecar, error) {
	cfg.setDefaults()
	s := &Sidecar{cfg: cfg, state: state{up: make(chan struct{})}}
	if err := s.locate(); err != nil {
		return nil, err
	}
	if min(cfg.HealthInterval, cfg.StartTimeout, cfg.Pause, cfg.MaxPause, cfg.Grace) < 0 || cfg.HealthFailures < 0 {
		return nil, errors.New("sidecar: HealthFailures and all times except Wait must not be negative")
	}
	for _, typ := range cfg.Types {
		if typ == "" {
			return nil, errors.New("sidecar: a task type is empty")
		}
	}
	for i, v := range cfg.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return nil, fmt.Errorf("sidecar: variable %d of %d is not of the form NAME=value", i+1, len(cfg.Env))
		}
	}
	if len(cfg.Command) > 0 {
		var err error
		if s.program, err = exec.LookPath(cfg.Command[0]); err != nil {
			return nil, fmt.Errorf("sidecar: %w", err)
		}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, s.network, s.address)
	}
	s.client = &http.Client{
		// Each call has a new connection. A reused one may turn out to be dead after the
		// task was sent.
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

const dialTimeout = 5 * time.Second

// locate parses the URL.
func (s *Sidecar) locate() error {
	u, err := url.Parse(s.cfg.URL)
	if err != nil {
		return errors.New("sidecar: the url is not valid") // err quotes the URL
	}
	switch {
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		s.network, s.address, s.url = "unix", u.Path, "http://sidecar"
		return nil
	case (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		s.network, s.address, s.url = "tcp", net.JoinHostPort(u.Hostname(), port), strings.TrimRight(s.cfg.URL, "/")
		return nil
	}
	return errors.New("sidecar: the url must be http://host, https://host or unix:///path")
}

// Routes returns the handlers of the forwarded task types.
func (s *Sidecar) Routes() map[string]task.Handler {
	routes := map[string]task.Handler{task.TypeDelegate: http.HandlerFunc(s.deliver)}
	for _, typ := range s.cfg.Types {
		if typ != task.TypeDelegate {
			routes[typ] = http.HandlerFunc(s.forward)
		}
	}
	return routes
}
