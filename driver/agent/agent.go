package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/secrets"
)

// Config sets up an [Agent]. The zero value is fine.
type Config struct {
	// Version is what /healthz says. Empty is "dlite".
	Version string
	// Log takes what no caller is told, without output or variables of steps. The
	// zero value writes nothing.
	Log zerolog.Logger
	// TempDir is the folder for output that memory has no room for, which is
	// encrypted there. Empty is [os.TempDir].
	TempDir string
	// MaxMemory is how many bytes of one step's output stay in memory. 0 is 256 KiB.
	MaxMemory int
	// MaxBody bounds the body of a request, in bytes. 0 is 64 MiB.
	MaxBody int64
	// CleanupTimeout bounds a destroy, whoever still waits for it. 0 is 5 minutes.
	CleanupTimeout time.Duration
	// ReportTimeout bounds how long the agent tries to tell a manager that a step
	// has ended, and the log service the rest of its log. 0 is 10 minutes.
	ReportTimeout time.Duration
	// HTTPClient makes the requests to log services and managers that the requests
	// of other drivers name. Nil is one of the agent's own, which obeys HTTP_PROXY.
	HTTPClient *http.Client
	// Masks says how secrets are found in what the agent sends to log services.
	Masks secrets.Config
}

// Agent runs the steps of one stage at a time. It is safe for concurrent use. Use
// [New].
type Agent struct {
	driver driver.Driver
	cfg    Config
	http   *http.Client
	own    *http.Transport // that of http, unless that was given

	mu     sync.Mutex
	tx     *transaction // nil between a destroy and the next setup; guarded by mu
	closed bool         // guarded by mu
}

// New makes an agent on d, which stays the caller's to close, after the agent.
func New(d driver.Driver, cfg Config) *Agent {
	if cfg.Version == "" {
		cfg.Version = "dlite"
	}
	if cfg.MaxMemory == 0 {
		cfg.MaxMemory = 256 << 10
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 64 << 20
	}
	if cfg.CleanupTimeout == 0 {
		cfg.CleanupTimeout = 5 * time.Minute
	}
	if cfg.ReportTimeout == 0 {
		cfg.ReportTimeout = 10 * time.Minute
	}
	a := &Agent{driver: d, cfg: cfg, http: cfg.HTTPClient}
	if a.http == nil {
		a.own = http.DefaultTransport.(*http.Transport).Clone()
		a.http = &http.Client{Transport: a.own}
	}
	return a
}

// Close ends the stage that there is, if any, as a destroy does: its steps are
// stopped and all that they left is removed. No setup is taken after it.
func (a *Agent) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	err := a.destroy(ctx)
	if a.own != nil {
		a.own.CloseIdleConnections()
	}
	return err
}

var (
	errClosed  = errors.New("the agent is ending")
	errNoSetup = errors.New("the agent has no stage: call /setup first")
)

// setup begins a stage, or waits for the one that an earlier request has begun. One
// that is being destroyed already is waited for, and another one begins after it.
func (a *Agent) setup(ctx context.Context, req *SetupRequest) (*SetupResponse, error) {
	id := firstOf(req.ID, req.Network.ID, "stage")
	for {
		t, began, err := a.admit(id, req)
		if err != nil {
			return nil, err
		}
		over := t.alive.Err() != nil
		if began {
			t.init()
			close(t.ready)
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case t.initErr == nil && t.alive.Err() == nil:
			return &SetupResponse{Log: t.masks.Mask(t.initLog.String())}, nil
		case began:
			// What it has made goes at once. What stays waits for a destroy.
			err := cmp.Or(t.initErr, context.Cause(t.alive))
			if left := a.destroyOne(ctx, t); left != nil {
				err = fmt.Errorf("%w (and %w)", err, left)
			}
			return nil, &setupError{text: t.masks.Mask(err.Error()), log: t.masks.Mask(t.initLog.String())}
		case !over && (t.initErr == nil || errors.Is(t.initErr, errDestroyed)):
			return nil, badRequest(errDestroyed) // who has destroyed it wants no other one
		}
		// Somebody else's setup has failed, or is over: this is another try.
		if err := a.destroyOne(ctx, t); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // nobody would destroy it
		}
	}
}

// maskedError is an error whose text is masked (SPEC S3): a driver may name what it
// has tried to remove.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }

// setupError is a failed init with its log, both masked.
type setupError struct{ text, log string }

func (e *setupError) Error() string { return e.text }

// admit makes the stage of a new setup, or finds the one that a repeated setup
// means.
func (a *Agent) admit(id string, req *SetupRequest) (t *transaction, began bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, false, errClosed
	case a.tx == nil:
		a.tx = newTransaction(a, id, req)
		return a.tx, true, nil
	case a.tx.env.ID == id:
		return a.tx, false, nil
	}
	return nil, false, badRequest(errors.New("the agent has another stage: call /destroy first"))
}

// current is the stage that there is.
func (a *Agent) current() (*transaction, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tx == nil {
		return nil, badRequest(errNoSetup)
	}
	return a.tx, nil
}

// destroy ends the stage that there is.
func (a *Agent) destroy(ctx context.Context) error {
	t, err := a.current()
	if err != nil {
		return nil
	}
	return a.destroyOne(ctx, t)
}

// destroyOne ends t. It goes on when ctx ends: who asks again waits for it.
func (a *Agent) destroyOne(ctx context.Context, t *transaction) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.CleanupTimeout)
	defer cancel()
	if err := t.end(ctx); err != nil {
		return &maskedError{t.masks.Mask(err.Error()), err}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tx == t {
		a.tx = nil
	}
	return nil
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
