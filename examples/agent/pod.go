package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/logger"
)

// podSettings are those of a container of a pod. The driver that makes the pod sets
// the variables.
type podSettings struct {
	Container string        `name:"container" env:"DLITE_POD_CONTAINER" help:"The container's name." default:"hub"`
	Token     string        `name:"token" env:"DLITE_POD_TOKEN" help:"The container's token." hidden:""`
	Grace     time.Duration `name:"grace" env:"DLITE_POD_GRACE" help:"Time between SIGTERM and SIGKILL for a step that is stopped." placeholder:"TIME"`
}

// serve runs an agent for this container while serve runs.
func (s *podSettings) serve(ctx context.Context, wrap func(driver.Driver) driver.Driver, serve func(http.Handler) error) (err error) {
	log, closer, err := logger.New(logger.Config{Level: "warn"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	memory := filepath.Join(podagent.MemoryDir, s.Container)
	if err := os.MkdirAll(memory, 0o711); err != nil {
		return err
	}
	d, err := host.New(host.Config{
		WorkDir: filepath.Join(podagent.WorkDir, s.Container), MemoryDir: memory,
		Workspace: podagent.Workspace, Grace: s.Grace,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	a := agent.New(wrap(d), agent.Config{Version: version(), Log: log, TempDir: memory})
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		err = errors.Join(err, a.Close(end))
	}()
	return serve(a.Handler())
}

type hubCommand struct{ podSettings }

// Run is the first process of a pod's hub.
func (c *hubCommand) Run(ctx context.Context) error {
	return c.serve(ctx, func(d driver.Driver) driver.Driver { return d }, func(h http.Handler) error {
		hub, err := podagent.NewHub(podagent.HubConfig{Token: c.Token, Agent: h, Log: os.Stderr})
		if err != nil {
			return err
		}
		if err := hub.Run(ctx); err != nil {
			return err
		}
		return told{}
	})
}

// told is the end of a hub, which comes by a signal alone. Of a pod whose containers
// have all ended with 0 the cluster says that it succeeded, and not that it was
// evicted.
type told struct{}

func (told) Error() string { return "the pod is to end" }

// ExitCode is that of a process which SIGTERM ended.
func (told) ExitCode() int { return 128 + int(syscall.SIGTERM) }

type stepCommand struct{ podSettings }

// Run is the first process of a step's container.
func (c *stepCommand) Run(ctx context.Context) error {
	environ, err := podagent.WithHome(os.Environ(), filepath.Join(podagent.WorkDir, c.Container, "home"))
	if err != nil {
		return err
	}
	wrap := func(d driver.Driver) driver.Driver { return podagent.Inside(d, environ) }
	return c.serve(ctx, wrap, func(h http.Handler) error {
		return podagent.Step(ctx, podagent.StepConfig{Container: c.Container, Token: c.Token, Agent: h})
	})
}

type dialCommand struct{}

// Run connects the driver with the hub.
func (c *dialCommand) Run(ctx context.Context) error {
	return podagent.Dial(ctx, podagent.Control, os.Stdin, os.Stdout)
}
