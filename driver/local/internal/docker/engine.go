package docker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/task/stage"
)

// engineTimeout limits a call to the engine that must complete. After an abandoned call it is unknown
// whether the engine created something.
const engineTimeout = time.Minute

// engine is the connection to Docker. It is opened when a step needs it.
type engine struct {
	given bool   // the caller of New closes the client
	host  string // "" is the host of the environment

	mu       sync.Mutex
	cli      client.APIClient // guarded by mu
	answered bool             // guarded by mu
}

// ready returns a client whose engine has answered once. The driver records nothing before that: it
// could not find out later that the engine never created it.
func (e *engine) ready(ctx context.Context) (client.APIClient, error) {
	cli, err := e.client()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	answered := e.answered
	e.mu.Unlock()
	if answered {
		return cli, nil
	}
	ping, err := cli.Ping(ctx)
	if err != nil {
		return nil, explainEngine(cli, err)
	}
	if !e.given {
		cli.NegotiateAPIVersionPing(ping) // saves a ping of the client
	}
	e.mu.Lock()
	e.answered = true
	e.mu.Unlock()
	return cli, nil
}

func (e *engine) client() (client.APIClient, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cli != nil {
		return e.cli, nil
	}
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if e.host != "" {
		opts = append(opts, client.WithHost(e.host))
	}
	cli, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker client: %w", err)
	}
	e.cli = cli
	return cli, nil
}

func (e *engine) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.given || e.cli == nil {
		return nil
	}
	return e.cli.Close()
}

// explainEngine adds to a connection error which engine does not answer.
func explainEngine(cli client.APIClient, err error) error {
	if client.IsErrConnectionFailed(err) && !errors.Is(err, errEngineLost) {
		return &awayError{fmt.Errorf("no Docker engine answers at %s, which a step with an image needs: %w", cli.DaemonHost(), err)}
	}
	return err
}

// awayError is the error of a call that found no engine.
type awayError struct{ error }

func (e *awayError) Unwrap() error { return e.error }

// FailureKind returns the kind of the failure for the answer to the manager.
func (e *awayError) FailureKind() string { return stage.FailureConnectivity }

// socketPath returns the path of the engine's socket on this machine.
func socketPath(cli client.APIClient) string {
	if u, err := url.Parse(cli.DaemonHost()); err == nil && u.Scheme == "unix" && u.Path != "" {
		return u.Path
	}
	return "/var/run/docker.sock"
}

// detach returns a context that does not end with ctx.
func detach(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// removeContainer removes a container in any state, with its anonymous volumes. It returns when the
// container is gone.
func removeContainer(ctx context.Context, cli client.APIClient, id string) error {
	err := cli.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	// A conflict means that another call removes the container.
	for wait := 10 * time.Millisecond; errdefs.IsConflict(err); wait *= 2 {
		if _, inspectErr := cli.ContainerInspect(ctx, id); errdefs.IsNotFound(inspectErr) {
			return nil
		}
		if wait > 2*time.Second {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
		err = cli.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
