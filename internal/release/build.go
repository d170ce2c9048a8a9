package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// programPackage is the package that knows the version of a program.
const programPackage = "github.com/delegate-io/dlite/examples/internal/program"

// supervisorPackage is the small program for the host steps of a transaction. The delegate for Linux has it inside.
const supervisorPackage = "github.com/delegate-io/dlite/driver/local/host/supervisor"

// Package grpc links the templates of golang.org/x/net/trace unless this tag is set. Templates call methods by name, so
// that the linker keeps every method: 25 MB of the manager, which links gRPC with its buckets.
const tags = "grpcnotrace"

// longestBuild is the time limit of one call of the Go command, for a slow machine without a build cache.
const longestBuild = time.Hour

// source is the state of the repository that a release is built from.
type source struct {
	root     string    // directory of the repository
	version  string    // such as v1.2.3; empty for a build that is not released
	revision string    // full hash of the commit
	date     time.Time // of the commit; the time of every file of the release
}

// A builder calls the Go command.
type builder struct {
	source
	env     []string
	scratch string // an absolute directory for temporary files
}

// newBuilder returns a builder that writes temporary files into scratch.
func newBuilder(ctx context.Context, src source, scratch string) (*builder, error) {
	root, err := filepath.Abs(src.root)
	if err != nil {
		return nil, err
	}
	src.root = root
	if scratch, err = filepath.Abs(scratch); err != nil {
		return nil, err
	}
	env, err := goEnvironment(ctx, root)
	return &builder{source: src, env: env, scratch: scratch}, err
}

// goEnvironment returns the environment of the Go command: the places and the network of this user, and no setting
// that changes what is built.
//
// GOWORK is off: the programs are built with the versions in examples/go.mod. In the workspace another module, such as
// this one, could raise them.
func goEnvironment(ctx context.Context, dir string) ([]string, error) {
	names := []string{"GOPATH", "GOMODCACHE", "GOCACHE", "GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOTMPDIR"}
	cmd := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, names...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", commandError(err))
	}
	values := map[string]string{}
	if err := json.Unmarshal(out, &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GO") && !strings.HasPrefix(v, "CGO_") {
			env = append(env, v)
		}
	}
	for _, name := range names {
		if values[name] != "" {
			env = append(env, name+"="+values[name])
		}
	}
	return append(env, "GOENV=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0"), nil
}

// build writes the executables of programs for a platform into the directory out. An empty out compiles and links
// them, and keeps nothing.
func (b *builder) build(ctx context.Context, programs []program, on platform, out string) error {
	flags := b.flags()
	if on.os == "linux" {
		overlay, err := b.overlay(ctx, on)
		if err != nil {
			return err
		}
		flags = append(flags, "-overlay", overlay)
	}
	if out == "" {
		scratch, err := os.MkdirTemp(b.scratch, "discarded-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(scratch) }()
		out = scratch
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	// The Go command takes the slash at the end for a directory.
	args := append(append([]string{"build"}, flags...), "-o", out+string(filepath.Separator))
	for _, p := range programs {
		args = append(args, "./"+p.name)
	}
	return b.run(ctx, on, args...)
}

// flags returns the flags of every build.
//
// The Go command does not record the state of git: it could not in a source archive. The program gets version and
// revision from here instead. -trimpath removes the directories of the repository and of the modules.
func (b *builder) flags() []string {
	link := "-s -w"
	if b.version != "" {
		link += " -X " + programPackage + ".release=" + b.version
	}
	if b.revision != "" {
		link += " -X " + programPackage + ".revision=" + b.revision
	}
	return []string{"-trimpath", "-buildvcs=false", "-tags=" + tags, "-ldflags=" + link}
}

// overlay builds the small program of supervisors, and returns a file for the flag -overlay that puts it in place of
// the empty file in the repository.
func (b *builder) overlay(ctx context.Context, on platform) (string, error) {
	small := filepath.Join(b.scratch, "supervisor-"+on.arch)
	if err := b.run(ctx, on, append(append([]string{"build"}, b.flags()...), "-o", small, supervisorPackage)...); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(b.root, "examples", "delegate", "supervisor.bin"): small}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.scratch, "overlay-"+on.arch+".json")
	return file, os.WriteFile(file, text, 0o600)
}

// run calls the Go command in the module of the programs.
func (b *builder) run(ctx context.Context, on platform, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, longestBuild)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.root, "examples")
	cmd.Env = append(b.env, "GOOS="+on.os, "GOARCH="+on.arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s for %s: %w (see above; missing modules are fetched by go mod download, with a network)", args[0], on, err)
	}
	return nil
}

// commandError returns the error of a command with the end of its standard error.
func commandError(err error) error {
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(e.Stderr)))
	}
	return err
}
