package docker

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

// Config sets up a [Runner]. It has the fields of local.DockerConfig, which documents them.
type Config struct {
	Host       string
	Client     client.APIClient
	EngineWait time.Duration
}

// Runner runs steps in containers. It is safe for concurrent use. Use [New].
type Runner struct {
	shared     *steps.Driver
	engine     engine
	engineWait time.Duration
	pullTimes  pullTimes

	mu       sync.Mutex
	networks map[string]*networkState // by name; guarded by mu
	gone     map[string]struct{}      // containers and volumes removed before their cleanup; guarded by mu
}

// New returns a runner for the driver that has the state shared (host.Driver.Shared), and adds
// containers, volumes and networks to its cleanup. It contacts no engine.
func New(shared *steps.Driver, cfg Config) *Runner {
	if cfg.EngineWait == 0 {
		cfg.EngineWait = 30 * time.Second
	}
	d := &Runner{
		shared:     shared,
		engine:     engine{cli: cfg.Client, given: cfg.Client != nil, host: cfg.Host},
		engineWait: max(cfg.EngineWait, 0),
		pullTimes:  defaultPullTimes,
		networks:   map[string]*networkState{},
		gone:       map[string]struct{}{},
	}
	shared.AddCleaner(func() steps.Cleaner { return &cleanup{d: d, outage: outage{limit: d.engineWait}} })
	return d
}

// Close closes the connection to the engine.
func (d *Runner) Close() error { return d.engine.close() }

// Execute runs a step with an image until it ends, or starts a detached step (rule D3).
func (d *Runner) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	return d.shared.Execute(ctx, env, step, out, l, backend{d})
}

// backend implements [steps.Backend].
type backend struct{ d *Runner }

func (b backend) Check(step *stage.Step) error {
	if step.Plugin != nil {
		return errors.New("a plugin runs on the host, and the step has an image")
	}
	return nil
}

func (b backend) Run(ctx context.Context, r *steps.Run) (*driver.Result, error) {
	return (&run{Run: r, d: b.d}).runContainer(ctx)
}

// Reattach continues to follow the container of a step that an earlier delegate process started (rule
// T5). It reads the output from its beginning, which the engine keeps as long as the container exists.
// The step's time-out counts from the start of the container. If begun names no container, Reattach
// returns [driver.ErrNotBegun].
func (d *Runner) Reattach(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	containers := slices.DeleteFunc(slices.Clone(begun), func(r driver.Resource) bool { return r.Kind != steps.KindContainer })
	if len(containers) == 0 {
		return nil, driver.ErrNotBegun
	}
	shared, err := d.shared.NewRun(env, step, out, l)
	if err != nil {
		return nil, err
	}
	r := &run{Run: shared, d: d}
	res, err := r.reattach(ctx, containers[len(containers)-1])
	if err != nil || !res.Detached {
		r.Out.Close()
	}
	switch {
	case errors.Is(err, driver.ErrNotBegun):
		return nil, err
	case err != nil:
		return nil, r.Fail(err)
	}
	return res, nil
}

// run is the execution of one container step.
type run struct {
	*steps.Run
	d *Runner
}

// setRemoved notes that a container and its volumes are gone, so that their cleanup does not ask the
// engine.
func (d *Runner) setRemoved(container string, volumes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone[container] = struct{}{}
	for _, name := range volumes {
		d.gone[name] = struct{}{}
	}
}

// takeRemoved reports whether setRemoved has noted the name, and forgets it.
func (d *Runner) takeRemoved(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.gone[name]
	delete(d.gone, name)
	return ok
}
