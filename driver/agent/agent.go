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

// Config configures an [Agent]. The zero value is valid.
type Config struct {
	// Version is the version that /healthz reports. Empty is "dlite".
	Version string
	// Log receives events that no caller receives. It receives no output and no variables of
	// steps. The zero value writes nothing.
	Log zerolog.Logger
	// Interruption returns the notice that the cloud takes the machine away, or nil. The agent calls it for each question
	// about its health. Nil means that there never is one.
	Interruption func() *Interruption
	// TempDir is the directory for encrypted output that does not fit into memory. Empty is
	// [os.TempDir].
	TempDir string
	// MaxMemory limits the output of one step in memory, in bytes. 0 is 256 KiB.
	MaxMemory int
	// MaxBody limits the body of a request, in bytes. 0 is 64 MiB.
	MaxBody int64
	// CleanupTimeout limits a destroy, even if its caller has gone. 0 is 5 minutes.
	CleanupTimeout time.Duration
	// ReportTimeout limits the attempts to report the end of a step to a manager, and to send the
	// rest of its log. 0 is 10 minutes.
	ReportTimeout time.Duration
	// HTTPClient sends the requests to log services and managers that foreign drivers name. Nil is
	// a client of the agent's own, which obeys HTTP_PROXY.
	HTTPClient *http.Client
	// Masks configures how the agent finds secrets in text for log services.
	Masks secrets.Config
}

// Agent runs the steps of one stage at a time. It is safe for concurrent use. Create it with
// [New].
type Agent struct {
	driver driver.Driver
	cfg    Config
	http   *http.Client
	own    *http.Transport // transport of http; nil if the caller passed a client

	mu     sync.Mutex
	tx     *transaction // nil between a destroy and the next setup; guarded by mu
	closed bool         // guarded by mu
}

// New returns an agent that runs steps on d. The caller closes d after the agent.
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

// Close stops the steps of the current stage and removes its resources, as a destroy does. The
// agent refuses setups afterwards.
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
	errClosed  = errors.New("the agent is shutting down")
	errNoSetup = errors.New("the agent has no stage: call /setup first")
)

// setup starts a stage, or waits for the stage that an earlier request started. If that stage is
// being destroyed, setup waits and then starts a new one.
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
			// The failed init's resources are removed at once. A later destroy retries the rest.
			err := cmp.Or(t.initErr, context.Cause(t.alive))
			if left := a.destroyOne(ctx, t); left != nil {
				err = fmt.Errorf("%w (and %w)", err, left)
			}
			return nil, &setupError{text: t.masks.Mask(err.Error()), log: t.masks.Mask(t.initLog.String())}
		case !over && (t.initErr == nil || errors.Is(t.initErr, errDestroyed)):
			return nil, badRequest(errDestroyed) // the caller that destroyed it wants no new stage
		}
		// An earlier setup failed or was destroyed: this request starts a new stage.
		if err := a.destroyOne(ctx, t); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // no caller is left to destroy a new stage
		}
	}
}

// maskedError is an error with a masked text (rule S3): a driver's error may quote a secret.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }

// setupError is the error and the log of a failed init, both masked.
type setupError struct{ text, log string }

func (e *setupError) Error() string { return e.text }

// admit creates the stage of a new setup, or returns the stage of a repeated one.
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

// current returns the current stage.
func (a *Agent) current() (*transaction, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tx == nil {
		return nil, badRequest(errNoSetup)
	}
	return a.tx, nil
}

// destroy ends the current stage.
func (a *Agent) destroy(ctx context.Context) error {
	t, err := a.current()
	if err != nil {
		return nil
	}
	return a.destroyOne(ctx, t)
}

// destroyOne ends t. It continues after ctx ends; a repeated request waits for it.
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
