package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// RemoteConfig configures a [Remote]. URLs and Accounts are required.
type RemoteConfig struct {
	// URLs are the addresses of the managers of one store, such as https://manager.example.com:3460, or of a
	// load balancer in front of them. A call that fails at one address is repeated at the next one.
	URLs []string
	// Accounts maps account ids to their secrets, as in [manager.Config].
	Accounts map[string]string
	// Transport makes the connections. Defaults to one like [http.DefaultTransport].
	Transport http.RoundTripper
	// Logger logs lost connections. The zero value logs nothing.
	Logger zerolog.Logger
}

// Remote is a manager in other processes, which it calls by the manager's HTTP API. It is safe for concurrent
// use.
type Remote struct {
	accounts map[string]*remoteAccount
	idle     func() // closes idle connections
	log      zerolog.Logger

	ctx  context.Context //nolint:containedctx // ends with Close: the calls without a context use it
	stop context.CancelFunc

	mu      sync.Mutex // held while a stream starts
	streams sync.WaitGroup
}

// remoteAccount is an account of a Remote.
type remoteAccount struct {
	client *api.Client
	feed   *remoteFeed

	mu         sync.Mutex
	connectors []api.Connector // guarded by mu
	asked      time.Time       // guarded by mu
}

var (
	_ Manager     = (*Remote)(nil)
	_ statusTasks = (*Remote)(nil)
)

// NewRemote returns the managers at some addresses. It makes no call.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("the address of the manager is missing")
	}
	if len(cfg.Accounts) == 0 {
		return nil, errors.New("the accounts of the manager are missing")
	}
	if cfg.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // of net/http
		t.MaxIdleConnsPerHost = 64
		cfg.Transport = t
	}
	r := &Remote{log: cfg.Logger, accounts: map[string]*remoteAccount{}, idle: (&http.Client{Transport: cfg.Transport}).CloseIdleConnections}
	for id, text := range cfg.Accounts {
		secret, err := token.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("the secret of account %q: %w", id, err)
		}
		feed := &remoteFeed{changed: make(chan struct{})}
		client, err := api.New(api.Config{
			URLs: cfg.URLs, Account: id, TokenSource: (&remoteToken{account: id, secret: secret}).get,
			HTTP: &http.Client{Transport: &freshReads{cfg.Transport, feed}}, RetryFor: -1, Timeout: attemptTimeout,
		})
		switch {
		case id == "":
			return nil, errors.New("an account of the manager has no id")
		case err != nil:
			return nil, errors.New("the address of the manager is not valid: use the form https://host:port")
		}
		r.accounts[id] = &remoteAccount{client: client, feed: feed}
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// Close ends the event streams.
func (r *Remote) Close() {
	r.mu.Lock()
	r.stop() // below the lock, so that no stream starts after it
	r.mu.Unlock()
	r.streams.Wait()
	r.idle()
}

// Check calls the managers with the token of each account. It fails if no manager answers, or if one refuses a token.
func (r *Remote) Check(ctx context.Context) error {
	for _, account := range r.Accounts() {
		_, err := call(ctx, r, account, func(ctx context.Context, c *api.Client) ([]api.Limit, error) { return c.Limits(ctx) })
		if err != nil {
			return fmt.Errorf("account %s: %w", account, err)
		}
	}
	return nil
}

// Accounts returns the ids of the accounts in their order.
func (r *Remote) Accounts() []string { return slices.Sorted(maps.Keys(r.accounts)) }

// SubmitStage is [manager.Manager.SubmitStage].
func (r *Remote) SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error) {
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.SubmitStage(ctx, req) })
}

// AppendSteps is [manager.Manager.AppendSteps].
func (r *Remote) AppendSteps(ctx context.Context, account, id string, steps []api.StepRequest) (api.Stage, error) {
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.AppendSteps(ctx, id, steps...) })
}

// FinishStage is [manager.Manager.FinishStage].
func (r *Remote) FinishStage(ctx context.Context, account, id string) (api.Stage, error) {
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.FinishStage(ctx, id) })
}

// RenewStage is [manager.Manager.RenewStage].
func (r *Remote) RenewStage(ctx context.Context, account, id string) (api.Stage, error) {
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.RenewStage(ctx, id) })
}

// AbortStage is [manager.Manager.AbortStage].
func (r *Remote) AbortStage(ctx context.Context, account, id string) (api.Stage, error) {
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.AbortStage(ctx, id) })
}

// AbortStep is [manager.Manager.AbortStep].
func (r *Remote) AbortStep(ctx context.Context, account, id, step string) (api.Stage, error) {
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.AbortStep(ctx, id, step) })
}

// SubmitTask is [manager.Manager.SubmitTask]. It makes the statuses of commits possible. It uses the id, type, data and
// time-out of the task.
func (r *Remote) SubmitTask(ctx context.Context, account string, req manager.TaskRequest) (api.Task, error) {
	t := &req.Task
	return call(ctx, r, account, func(ctx context.Context, c *api.Client) (api.Task, error) {
		return c.SubmitTask(ctx, api.TaskRequest{
			ID: t.ID, Type: t.Type, Data: t.Data, TimeoutMS: int64(t.Timeout), Selectors: req.Selectors, Priority: req.Priority,
			QueueTimeoutMS: int64(req.QueueTimeout), Retry: req.Retry, Sync: req.Sync,
		})
	})
}

// Stage is [manager.Manager.Stage]. The state has at least the changes of all events that Events has returned.
func (r *Remote) Stage(account, id string) (api.Stage, error) {
	return read(r.ctx, r, account, func(ctx context.Context, c *api.Client) (api.Stage, error) { return c.Stage(ctx, id) })
}

// Step is [manager.Manager.Step]. The state has at least the changes of all events that Events has returned.
func (r *Remote) Step(account, id, step string) (api.StepState, error) {
	return read(r.ctx, r, account, func(ctx context.Context, c *api.Client) (api.StepState, error) { return c.Step(ctx, id, step) })
}

// EndedStages is [manager.Manager.EndedStages]. The list has at least the ends of all events that Events has returned.
func (r *Remote) EndedStages(ctx context.Context, account string, after uint64, limit int) (api.NumberedStages, error) {
	return read(ctx, r, account, func(ctx context.Context, c *api.Client) (api.NumberedStages, error) {
		return c.NumberedStages(ctx, after, limit)
	})
}
