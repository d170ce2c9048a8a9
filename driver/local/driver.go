package local

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/local/internal/docker"
)

// Config sets up a [Driver]. The zero value is ready to use.
type Config struct {
	// Host sets up the directories and the steps on the host. Grace and FileLimit apply to container
	// steps too.
	Host host.Config
	// Docker sets up the steps in containers.
	Docker DockerConfig
}

// DockerConfig sets up the steps in containers. The zero value uses the engine of the environment.
type DockerConfig struct {
	// Host is the address of the engine, such as "unix:///var/run/docker.sock" or
	// "tcp://127.0.0.1:2375". The default is DOCKER_HOST with its companion variables, or else the
	// usual socket of the platform. The driver contacts no engine before a step needs a container.
	Host string
	// Client replaces Host. The caller closes it.
	Client client.APIClient
	// EngineWait is how long the driver waits for an engine that went away: it repeats a call that
	// creates or removes something until the engine is back. The time counts once for each cleanup and
	// each step. The default is 30 seconds; a negative value waits for nothing. A step fails at once if
	// no engine has ever answered.
	EngineWait time.Duration
}

// Driver runs steps on this machine: a step with an image in a Docker container, any other step as a
// process of the host. It is safe for concurrent use. Use [New].
type Driver struct {
	host   *host.Driver
	docker *docker.Runner
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Finder     = (*Driver)(nil)
	_ driver.Reattacher = (*Driver)(nil)
)

// New returns a driver. It fails if a field of cfg is invalid or the work directory cannot be used. It
// contacts no Docker engine.
func New(cfg Config) (*Driver, error) {
	h, err := host.New(cfg.Host)
	if err != nil {
		return nil, err
	}
	return &Driver{host: h, docker: docker.New(h.Shared(), docker.Config(cfg.Docker))}, nil
}

// Infra returns "local".
func (d *Driver) Infra() string { return "local" }

// Close ends the goroutines that serve detached steps and waits for them. It kills detached host
// steps, because nothing reads their output afterwards. Detached containers run until Cleanup. Call no
// other method after Close.
func (d *Driver) Close() error { return errors.Join(d.host.Close(), d.docker.Close()) }

// Init creates the directories, volumes and files of a transaction (rule D2), as
// [host.Driver.Init] does. It contacts no engine: the first step that needs the network creates it.
func (d *Driver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	return d.host.Init(ctx, env, l)
}

// Execute runs a step until it ends, or starts a detached step (rules D3 and D4). After the step's own
// time-out, which does not concern a detached step, the error wraps [context.DeadlineExceeded].
func (d *Driver) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	if step.Image != "" {
		return d.docker.Execute(ctx, env, step, out, l)
	}
	return d.host.Execute(ctx, env, step, out, l)
}

// Reattach continues to follow the container of a step that an earlier delegate process started (rule
// T5). It reads the output from its beginning, which the engine keeps as long as the container exists.
// The step's time-out counts from the start of the container. If begun names no container, Reattach
// returns [driver.ErrNotBegun]. A process of the host it kills, see [host.Driver.Reattach].
func (d *Driver) Reattach(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	res, err := d.host.Reattach(ctx, env, step, out, l, begun)
	if errors.Is(err, driver.ErrNotBegun) {
		return d.docker.Reattach(ctx, env, step, out, l, begun)
	}
	return res, err
}

// Cleanup removes the resources of the records and returns those that it could not remove (rules T2
// and T3), as [host.Driver.Cleanup] does. Containers go after processes, then their volumes, then
// networks. Cleanup contacts the engine only for those three, and waits for an engine that is away
// ([DockerConfig], EngineWait).
func (d *Driver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	return d.host.Cleanup(ctx, rs)
}

// Find returns the containers, volumes and networks that carry all of labels. Directories and
// processes have no labels: only their records find them. If no engine answers, Find returns nothing.
func (d *Driver) Find(ctx context.Context, labels map[string]string) ([]driver.Resource, error) {
	return d.docker.Find(ctx, labels)
}
