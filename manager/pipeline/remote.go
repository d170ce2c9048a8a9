package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/token"
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
	urls    []string
	secrets map[string]token.Secret
	client  *http.Client
	log     zerolog.Logger

	ctx  context.Context //nolint:containedctx // ends with Close: the calls without a context use it
	stop context.CancelFunc

	mu      sync.Mutex
	current int // index of the address that answered last
	tokens  map[string]accountToken
	feeds   map[string]*remoteFeed
	streams sync.WaitGroup
}

var _ Manager = (*Remote)(nil)

// NewRemote returns the managers at some addresses. It makes no call.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	r := &Remote{
		secrets: map[string]token.Secret{}, log: cfg.Logger, tokens: map[string]accountToken{}, feeds: map[string]*remoteFeed{},
		client: &http.Client{Transport: cfg.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	if cfg.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // of net/http
		t.MaxIdleConnsPerHost = 64
		r.client.Transport = t
	}
	if len(cfg.URLs) == 0 {
		return nil, errors.New("the address of the manager is missing")
	}
	for _, text := range cfg.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
			return nil, fmt.Errorf("the address of the manager is not valid: use the form https://host:port")
		}
		r.urls = append(r.urls, strings.TrimRight(text, "/"))
	}
	if len(cfg.Accounts) == 0 {
		return nil, errors.New("the accounts of the manager are missing")
	}
	for id, text := range cfg.Accounts {
		secret, err := token.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("the secret of account %q: %w", id, err)
		}
		r.secrets[id] = secret
		r.feeds[id] = &remoteFeed{changed: make(chan struct{})}
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
	r.client.CloseIdleConnections()
}

// Check calls the managers with the token of each account. It fails if no manager answers, or if one refuses a token.
func (r *Remote) Check(ctx context.Context) error {
	for _, account := range r.Accounts() {
		if err := r.call(ctx, account, http.MethodGet, "/api/limits", nil, &struct{}{}); err != nil {
			return fmt.Errorf("account %s: %w", account, err)
		}
	}
	return nil
}

// Accounts returns the ids of the accounts in their order.
func (r *Remote) Accounts() []string { return slices.Sorted(maps.Keys(r.secrets)) }

func stagePath(id string, parts ...string) string {
	path := "/api/stages/" + url.PathEscape(id)
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

// SubmitStage is [manager.Manager.SubmitStage].
func (r *Remote) SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error) {
	return r.change(ctx, account, "/api/stages", req)
}

// AppendSteps is [manager.Manager.AppendSteps].
func (r *Remote) AppendSteps(ctx context.Context, account, id string, steps []api.StepRequest) (api.Stage, error) {
	return r.change(ctx, account, stagePath(id, "steps"), map[string][]api.StepRequest{"steps": steps})
}

// FinishStage is [manager.Manager.FinishStage].
func (r *Remote) FinishStage(ctx context.Context, account, id string) (api.Stage, error) {
	return r.change(ctx, account, stagePath(id, "finish"), nil)
}

// RenewStage is [manager.Manager.RenewStage].
func (r *Remote) RenewStage(ctx context.Context, account, id string) (api.Stage, error) {
	return r.change(ctx, account, stagePath(id, "renew"), nil)
}

// AbortStage is [manager.Manager.AbortStage].
func (r *Remote) AbortStage(ctx context.Context, account, id string) (api.Stage, error) {
	return r.change(ctx, account, stagePath(id, "abort"), nil)
}

// AbortStep is [manager.Manager.AbortStep].
func (r *Remote) AbortStep(ctx context.Context, account, id, step string) (api.Stage, error) {
	return r.change(ctx, account, stagePath(id, "steps", step, "abort"), nil)
}

// Stage is [manager.Manager.Stage]. The state has at least the changes of all events that Events has returned.
func (r *Remote) Stage(account, id string) (st api.Stage, err error) {
	err = r.read(account, stagePath(id), &st)
	return st, err
}

// Step is [manager.Manager.Step]. The state has at least the changes of all events that Events has returned.
func (r *Remote) Step(account, id, step string) (st api.StepState, err error) {
	err = r.read(account, stagePath(id, "steps", step), &st)
	return st, err
}

// EndedStages is [manager.Manager.EndedStages]. The list has at least the ends of all events that Events has returned.
func (r *Remote) EndedStages(ctx context.Context, account string, after uint64, limit int) (ended api.NumberedStages, err error) {
	path := "/api/ended-stages?after=" + strconv.FormatUint(after, 10)
	if limit > 0 {
		path += "&limit=" + strconv.Itoa(limit)
	}
	err = r.readUntil(ctx, account, path, &ended)
	return ended, err
}

func (r *Remote) change(ctx context.Context, account, path string, body any) (st api.Stage, err error) {
	err = r.call(ctx, account, http.MethodPost, path, body, &st)
	return st, err
}

// readTimeout bounds a read of the state, with its repetitions.
const readTimeout = 15 * time.Second

// staleWait is the time between two reads while the managers have not applied an event that another one has
// reported.
const staleWait = 20 * time.Millisecond

// read reads a state. Of several managers one may not have applied the latest events yet, so a state that is older
// than the newest event of the stream is read again.
func (r *Remote) read(account, path string, into any) error {
	return r.readUntil(r.ctx, account, path, into)
}

func (r *Remote) readUntil(ctx context.Context, account, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		err := r.call(ctx, account, http.MethodGet, path, nil, into)
		if !errors.Is(err, errStale) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(staleWait):
		}
	}
}
