package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/logger"
)

// podSettings are the variables that the driver sets in a container of a pod.
type podSettings struct {
	container, token string
	grace            time.Duration // between SIGTERM and SIGKILL for a step that is stopped
}

func readPodSettings() (s podSettings, err error) {
	s.container, s.token = cmp.Or(os.Getenv(podagent.EnvContainer), podagent.HubContainer), os.Getenv(podagent.EnvToken)
	if text := os.Getenv(podagent.EnvGrace); text != "" {
		if s.grace, err = time.ParseDuration(text); err != nil {
			return s, fmt.Errorf("%s: %w", podagent.EnvGrace, err)
		}
	}
	return s, nil
}

// podCommand returns a command without arguments that reads the settings of a pod.
func podCommand(name, help string, run func(context.Context, podSettings) error) *ffcli.Command {
	c := &ffcli.Command{Name: name, ShortUsage: "agent " + name, ShortHelp: help}
	c.Exec = func(ctx context.Context, args []string) error {
		if _, err := program.Arguments(c.FlagSet, args); err != nil {
			return err
		}
		s, err := readPodSettings()
		if err != nil {
			return err
		}
		return run(ctx, s)
	}
	return c
}

// serve runs the agent of this container as long as the function serve runs.
func (s podSettings) serve(ctx context.Context, wrap func(driver.Driver) driver.Driver, serve func(http.Handler) error) (err error) {
	log, closer, err := logger.New(logger.Config{Level: "warn"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	memory := filepath.Join(podagent.MemoryDir, s.container)
	if err := os.MkdirAll(memory, 0o711); err != nil {
		return err
	}
	d, err := host.New(host.Config{
		WorkDir: filepath.Join(podagent.WorkDir, s.container), MemoryDir: memory,
		Workspace: podagent.Workspace, Grace: s.grace, Builtins: storage.Builtins(), Trusted: true, // the pod belongs to one stage
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	a := agent.New(wrap(d), agent.Config{Version: program.Version(), Log: log, TempDir: memory})
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		err = errors.Join(err, a.Close(end))
	}()
	return serve(a.Handler())
}

// hubCommand returns the command of the first process of a pod's hub.
func hubCommand() *ffcli.Command {
	return podCommand("hub", "run the hub of a pod", func(ctx context.Context, s podSettings) error {
		return s.serve(ctx, func(d driver.Driver) driver.Driver { return d }, func(h http.Handler) error {
			hub, err := podagent.NewHub(podagent.HubConfig{Token: s.token, Agent: h, Log: os.Stderr})
			if err != nil {
				return err
			}
			if err := hub.Run(ctx); err != nil {
				return err
			}
			return errTerminated{}
		})
	})
}

// errTerminated is the end of a hub, which only a signal ends. If all containers of a pod
// ended with 0, the cluster would report a success and hide an eviction.
type errTerminated struct{}

func (errTerminated) Error() string { return "a signal ended the hub" }

// ExitCode returns the exit code of a process that SIGTERM ended.
func (errTerminated) ExitCode() int { return 128 + int(syscall.SIGTERM) }

// stepCommand returns the command of the first process of a step's container.
func stepCommand() *ffcli.Command {
	return podCommand("step", "run the step of a pod's container", func(ctx context.Context, s podSettings) error {
		environ, err := podagent.WithHome(os.Environ(), filepath.Join(podagent.WorkDir, s.container, "home"))
		if err != nil {
			return err
		}
		wrap := func(d driver.Driver) driver.Driver { return podagent.Inside(d, environ) }
		return s.serve(ctx, wrap, func(h http.Handler) error {
			return podagent.Step(ctx, podagent.StepConfig{Container: s.container, Token: s.token, Agent: h})
		})
	})
}

// dialCommand returns the command that connects the driver with the hub.
func dialCommand() *ffcli.Command {
	return podCommand("dial", "connect standard input and output with the hub of a pod", func(ctx context.Context, _ podSettings) error {
		return podagent.Dial(ctx, podagent.Control, os.Stdin, os.Stdout)
	})
}
