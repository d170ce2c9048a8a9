package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Errors of the service's methods, for errors.Is.
var (
	// ErrInvalid means that the request or the pipeline is not valid. The message says what
	// to change. [Problems] has the places.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound means that the account has no such run or node, or that it has expired.
	ErrNotFound = errors.New("not found")
	// ErrBudget means that the account has as many active runs as it may have. The call may
	// succeed later.
	ErrBudget = errors.New("the budget is used up")
	// ErrConflict means that the state of the run does not allow the call, or that another
	// run has the id.
	ErrConflict = errors.New("conflict")
)

// Manager is the part of a manager that the service needs. [manager.Manager] implements it.
type Manager interface {
	Accounts() []string
	SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error)
	AppendSteps(ctx context.Context, account, id string, steps []api.StepRequest) (api.Stage, error)
	FinishStage(ctx context.Context, account, id string) (api.Stage, error)
	RenewStage(ctx context.Context, account, id string) (api.Stage, error)
	AbortStage(ctx context.Context, account, id string) (api.Stage, error)
	AbortStep(ctx context.Context, account, id, step string) (api.Stage, error)
	Stage(account, id string) (api.Stage, error)
	Step(account, id, step string) (api.StepState, error)
	Events(account string, after uint64) manager.Feed
	EndedStages(ctx context.Context, account string, after uint64, limit int) (api.NumberedStages, error)
}

// Settings say where stages run, what connectors are, and which step types there are besides
// the built-in ones. The zero value is valid.
type Settings = steps.Config

// Infrastructure is where the stages of a kind of infrastructure run.
type Infrastructure = steps.Infrastructure

// Source is a named text, for example a file of YAML.
type Source = definition.Source

// Problem is an error or a warning at a place of a pipeline.
type Problem = definition.Problem

// Problems are the problems of a pipeline. As an error it lists the errors among them.
type Problems = definition.Problems

// Config configures a Service. Manager and Database are required.
type Config struct {
	// Manager runs the stages. The service does not close it.
	Manager Manager
	// Database is a file of SQLite, or a URL that begins with postgres://. Several services
	// may share a PostgreSQL database. A file is for one process.
	Database string
	// Logs reads the logs of steps for the API. The service does not close it. Nil means that the API has no logs.
	Logs Logs
	// Streams carries the messages between services, which may then share their load: streams.Redis of the package
	// below. The database keeps each message until it is handled, so that this Redis may lose everything. All
	// services on one database need the same Redis and Prefix, which defaults to
	// "dlite:pipelines". Nil means that each service handles the messages that it sends, and
	// messages that others have left in the database.
	Streams func(ctx context.Context, consumer string) (store.Streams, error)
	// Settings apply to all accounts.
	Settings Settings
	// Templates returns the text of a template by its reference without scope, and its
	// version label. Nil means that there are no templates.
	Templates func(ref, version string) (Source, bool)
	// Keys encrypt the secrets of webhooks in the database: random bytes, 16 or more each. The first key encrypts, and
	// all of them decrypt. All services on one database need the same keys. Without keys, the service refuses webhooks.
	Keys [][]byte
	// PageURL is the address of the page, for example https://manager.example.com. The statuses of commits link to the runs
	// there. Empty means no links.
	PageURL string
	// Retention is how long ended runs, and ended stages without a run, are kept. Defaults to 90
	// days.
	Retention time.Duration
	// MaxHistory bounds their size in bytes, as the database stores their data, without indexes:
	// above it, the service removes those that ended first. Those of the last minute always stay.
	// The service looks every minute. Defaults to 10 GiB. A negative value is no bound.
	MaxHistory int64
	// MaxActive is the number of runs of an account that have not ended. Defaults to 10,000.
	MaxActive int
	// Lease is how long the manager keeps a stage without a sign of any service. Defaults to
	// 2 minutes.
	Lease time.Duration
	// Logger logs the starts and ends of runs, and failures. The zero value logs nothing.
	Logger zerolog.Logger

	tuning tuning
}

// tuning is what tests change of the message loops.
type tuning struct {
	claim time.Duration // see defaultClaim
	tries int           // see defaultTries
	// abrupt lets Close leave claimed messages as a killed process does.
	abrupt bool
}

func (c *Config) setDefaults() error {
	if c.Manager == nil {
		return errors.New("a pipeline service needs a Manager")
	}
	if c.Database == "" {
		return errors.New("a pipeline service needs a Database")
	}
	if c.Retention < 0 {
		return errors.New("the setting Retention of a pipeline service is negative: it would remove every ended run")
	}
	if c.Lease != 0 && c.Lease < time.Second {
		return errors.New("the setting Lease of a pipeline service is below 1 second: stages would end before their lease is renewed")
	}
	for _, key := range c.Keys {
		if len(key) < minKey {
			return fmt.Errorf("a key of a pipeline service has %d bytes: it needs %d", len(key), minKey)
		}
	}
	if c.MaxActive < 0 {
		return errors.New("the setting MaxActive of a pipeline service is negative: no run could start")
	}
	if c.MaxActive == 0 {
		c.MaxActive = 10_000
	}
	if c.Retention == 0 {
		c.Retention = 90 * 24 * time.Hour
	}
	if c.MaxHistory == 0 {
		c.MaxHistory = 10 << 30
	}
	if c.Lease == 0 {
		c.Lease = 2 * time.Minute
	}
	if c.tuning.claim == 0 {
		c.tuning.claim = min(defaultClaim, c.Lease/4)
	}
	if c.tuning.tries == 0 {
		c.tuning.tries = defaultTries
	}
	return nil
}
