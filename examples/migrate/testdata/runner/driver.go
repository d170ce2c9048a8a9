package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// driver makes instances and runs steps in them.
type driver interface {
	name() string
	create(ctx context.Context, pool string) (*instance, error)
	destroy(ctx context.Context, in *instance) error
	run(ctx context.Context, in *instance, step *stepSpec, envs map[string]string, out io.Writer) (*result, error)
}

// instance is a place where the steps of one stage run.
type instance struct {
	ID      string
	Address string
	Stage   string
	dir     string
	driver  driver

	mu       sync.Mutex
	detached []*exec.Cmd
}

// result is the end of a step.
type result struct {
	ExitCode int
	Outputs  map[string]string
}

// processDriver runs steps as processes in a folder.
type processDriver struct{ root string }

func newProcessDriver(root string) *processDriver { return &processDriver{root: root} }

func (d *processDriver) name() string { return "process" }

func (d *processDriver) create(_ context.Context, pool string) (*instance, error) {
	dir, err := os.MkdirTemp(d.root, "instance-"+pool+"-")
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"work", "out"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &instance{ID: hex.EncodeToString(id), Address: "127.0.0.1", dir: dir, driver: d}, nil
}

func (d *processDriver) destroy(_ context.Context, in *instance) error {
	if in.dir == "" {
		return nil // a reserved place
	}
	in.mu.Lock()
	detached := in.detached
	in.detached = nil
	in.mu.Unlock()
	for _, cmd := range detached {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return os.RemoveAll(in.dir)
}

// write creates a file of the stage.
func (in *instance) write(f fileSpec) error {
	path := filepath.Join(in.dir, "work", filepath.FromSlash(f.Path))
	mode := os.FileMode(f.Mode) & 0o777
	if f.IsDir {
		if mode == 0 {
			mode = 0o700
		}
		return os.MkdirAll(path, mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o600
	}
	return os.WriteFile(path, []byte(f.Data), mode)
}

func (d *processDriver) run(ctx context.Context, in *instance, step *stepSpec, envs map[string]string, out io.Writer) (*result, error) {
	argv := append(append([]string{}, step.Run.Entrypoint...), step.Run.Command...)
	if len(argv) == 0 {
		return nil, errors.New("the step has no command")
	}
	outputs := filepath.Join(in.dir, "out", step.ID)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if step.Detach {
		cmd = exec.Command(argv[0], argv[1:]...)
	}
	cmd.Dir = filepath.Join(in.dir, "work", filepath.FromSlash(step.WorkingDir))
	cmd.Env = environ(envs, map[string]string{"PATH": os.Getenv("PATH"), "HOME": in.dir, "OUTPUT_FILE": outputs})
	if s := step.Status; s != nil {
		cmd.Env = append(cmd.Env, "STATUS_ENDPOINT="+s.Endpoint, "STATUS_TOKEN="+s.Token, "STATUS_TASK="+s.TaskID, "STATUS_DELEGATE="+s.DelegateID)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	if err := os.MkdirAll(cmd.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("could not start the step %s: %w", step.ID, err)
	}
	if step.Detach {
		in.mu.Lock()
		in.detached = append(in.detached, cmd)
		in.mu.Unlock()
		return &result{}, nil
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return &result{ExitCode: exit.ExitCode()}, nil
	case err != nil:
		return nil, err
	}
	values, err := readOutputs(outputs, step.OutputVars)
	return &result{Outputs: values}, err
}

func environ(envs, own map[string]string) []string {
	var list []string
	for name, value := range own {
		list = append(list, name+"="+value)
	}
	for name, value := range envs {
		list = append(list, name+"="+value)
	}
	return list
}

// readOutputs reads the lines NAME=value of a file for the names that are wanted.
func readOutputs(path string, names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	values := map[string]string{}
	for s := bufio.NewScanner(io.LimitReader(f, 1<<20)); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), "="); ok && wanted[name] {
			values[name] = value
		}
	}
	return values, nil
}
