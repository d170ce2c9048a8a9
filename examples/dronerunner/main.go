// Command dronerunner is a Drone runner with its own pipelines and engine. It takes pipelines of the type script:
//
//	kind: pipeline
//	type: script
//	name: default
//	steps:
//	- name: hello
//	  run: echo "hello from $DRONE_REPO"
//
// Package client/drone speaks with the server and sequences the steps, package poller runs the tasks. This program has
// the rest: compile reads a pipeline, and engine runs a step as a process in the directory of its stage.
//
//	DRONE_RPC_SECRET=<the server's secret> go run ./examples/dronerunner https://drone.example
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	goyaml "github.com/goccy/go-yaml"

	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dronerunner URL")
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "dronerunner-")
	if err == nil {
		err = run(context.Background(), os.Args[1], os.Getenv("DRONE_RPC_SECRET"), dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dronerunner:", err)
		os.Exit(1)
	}
}

// run serves the Drone server until ctx or a signal ends it.
func run(ctx context.Context, url, secret, dir string) error {
	slots := capacity.NewSlots(2)
	c, err := drone.New(drone.Config{Endpoint: url, Secret: secret, Types: []string{"script"}, Slots: slots, Compile: compile})
	if err != nil {
		return err
	}
	e := &engine{dir: dir, open: c.Log(nil)}
	routes := router.New(router.RouteMap{
		task.TypeLocalInit:    task.HandlerFunc(e.begin),
		task.TypeLocalExecute: task.HandlerFunc(e.step),
		task.TypeLocalCleanup: task.HandlerFunc(e.end),
	})
	return poller.New(c, routes, poller.WithSlots(slots), poller.WithSignals(os.Interrupt, syscall.SIGTERM)).Run(ctx, 4)
}

// compile reads the pipeline called name. Its steps run one after the other.
func compile(config []byte, name string, in yaml.Input) (*yaml.Plan, error) {
	for documents := goyaml.NewDecoder(bytes.NewReader(config)); ; {
		var p struct {
			Name  string
			Steps []struct{ Name, Run string }
		}
		if err := documents.Decode(&p); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the file has no pipeline %q", name)
		} else if err != nil {
			return nil, err
		}
		if p.Name != name {
			continue
		}
		plan := &yaml.Plan{}
		for i, s := range p.Steps {
			step := yaml.Step{Number: i + 1, Name: s.Name, OnSuccess: true}
			if i > 0 {
				step.DependsOn = []string{p.Steps[i-1].Name}
			}
			step.Execute.Step = stage.Step{Run: stage.Run{Command: []string{s.Run}}, Environment: in.Variables}
			plan.Steps = append(plan.Steps, step)
		}
		return plan, nil
	}
}

// engine runs steps as processes.
type engine struct {
	dir  string
	open func(context.Context, logger.StreamConfig) logger.TaskLog

	slots sync.Map // the slots of the open stages, by stage
}

// workspace returns the directory of a stage. The client makes its id.
func (e *engine) workspace(id string) string { return filepath.Join(e.dir, filepath.Base(id)) }

func (e *engine) begin(ctx context.Context, req *task.Request[stage.InitRequest]) (*stage.InitResponse, error) {
	if slot, ok := capacity.FromContext(ctx); ok && slot.Keep() {
		e.slots.Store(req.Data.GroupID, slot) // until the cleanup
	}
	return &stage.InitResponse{Status: stage.Success}, os.MkdirAll(e.workspace(req.Data.GroupID), 0o700)
}

func (e *engine) step(ctx context.Context, req *task.Request[stage.ExecuteRequest]) (*stage.ExecuteResponse, error) {
	s := &req.Data
	log := e.open(ctx, logger.StreamConfig{URL: s.LogConfig.URL, Key: s.LogKey})
	cmd := exec.CommandContext(ctx, "sh", "-ec", s.Run.Command[0])
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.workspace(s.GroupID), log, log
	cmd.Env = append(os.Environ(), variables(s.Environment)...)
	err := cmd.Run()
	if lost := log.Close(context.WithoutCancel(ctx)); lost != nil {
		logger.FromContext(ctx).Warn().Err(lost).Msg("a log is not complete")
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return &stage.ExecuteResponse{Status: stage.Failure, ExitCode: exit.ExitCode()}, nil
	case err != nil:
		return nil, err
	}
	return &stage.ExecuteResponse{Status: stage.Success}, nil
}

func (e *engine) end(_ context.Context, req *task.Request[stage.CleanupRequest]) (*stage.CleanupResponse, error) {
	if slot, ok := e.slots.LoadAndDelete(req.Data.GroupID); ok {
		defer slot.(*capacity.Slot).Release()
	}
	return &stage.CleanupResponse{Status: stage.Success}, os.RemoveAll(e.workspace(req.Data.GroupID))
}

func variables(all map[string]string) (list []string) {
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	return list
}
