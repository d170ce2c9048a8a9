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

// DefaultURL is where a legacy process listens (PROTOCOL 2).
const DefaultURL = "http://localhost:3461"

// Config says where the sidecar is and what it gets. The zero value forwards
// [task.TypeDelegate] to a process that somebody else looks after.
type Config struct {
	// URL is where tasks are posted: http, https, or unix:///path/of/the.socket.
	// Empty means [DefaultURL]. No proxy is used and no redirect is followed.
	URL string

	// Types are the task types that are forwarded, beside [task.TypeDelegate].
	Types []string

	// Wait is how long a task waits for a sidecar that cannot be reached. 0 means
	// 30 s, a negative value not to wait.
	Wait time.Duration

	// Command starts the sidecar, for [Sidecar.Run]. Empty means that somebody
	// else does. The process inherits PATH, HOME and the like, and nothing else of
	// the delegate's variables.
	Command []string
	// Env are its variables, as NAME=value.
	Env []string
	// Dir is its working directory. Empty means the delegate's.
	Dir string

	// Health is the path that a healthy sidecar answers with a status of 2xx. With
	// an empty one it has to accept connections.
	Health string
	// HealthInterval is the time between two looks at it, each of which may take 5 s.
	// 0 means 10 s.
	HealthInterval time.Duration
	// HealthFailures is how many looks in a row have to fail before the process is
	// started again. 0 means 3.
	HealthFailures int
	// StartTimeout bounds the time until it is healthy. 0 means 2 min.
	StartTimeout time.Duration

	// Pause is how long a process that ended is left alone before it is started
	// again; it doubles each time, up to MaxPause, until one has been healthy for
	// MaxPause. 0 means 1 s and 1 min.
	Pause, MaxPause time.Duration

	// Grace is the time between SIGTERM and SIGKILL. 0 means 10 s.
	Grace time.Duration

	// Log gets what the process prints, line by line at info level, and what becomes
	// of it. The default logs nothing.
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
		c.URL = DefaultURL
	}
}

// Sidecar forwards tasks. It is safe for concurrent use.
type Sidecar struct {
	cfg     Config
	url     string // for http.Request
	network string // of what is dialled
	address string
	program string
	client  *http.Client
	state   state
}

// New makes a sidecar; nothing is started. It fails on a URL that is none, on an empty
// task type, on a variable that is none, on a time below 0 and on a command that is not
// found.
func New(cfg Config) (*Sidecar, error) {
	cfg.setDefaults()
	s := &Sidecar{cfg: cfg, state: state{up: make(chan struct{})}}
	if err := s.locate(); err != nil {
		return nil, err
	}
	if min(cfg.HealthInterval, cfg.StartTimeout, cfg.Pause, cfg.MaxPause, cfg.Grace) < 0 || cfg.HealthFailures < 0 {
		return nil, errors.New("sidecar: of its times only Wait may be negative, and HealthFailures may not either")
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
		// A connection for each call: one that is used again may turn out to be dead
		// when the task has been sent.
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

const dialTimeout = 5 * time.Second

// locate reads the URL.
func (s *Sidecar) locate() error {
	u, err := url.Parse(s.cfg.URL)
	if err != nil {
		return errors.New("sidecar: the url is not valid") // err quotes it
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

// Routes are the handlers of the tasks that are forwarded.
func (s *Sidecar) Routes() map[string]task.Handler {
	routes := map[string]task.Handler{task.TypeDelegate: http.HandlerFunc(s.deliver)}
	for _, typ := range s.cfg.Types {
		if typ != task.TypeDelegate {
			routes[typ] = http.HandlerFunc(s.forward)
		}
	}
	return routes
}
