package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

//go:embed step/main.go
var stepSource []byte

// ownImageName builds the image for the container steps from one static program, so no image is pulled. The returned
// function removes the image.
func ownImageName(ctx context.Context) (name string, remove func() error, err error) {
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, docker.Close())
		}
	}()
	pinging, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := docker.Ping(pinging); err != nil {
		return "", nil, fmt.Errorf("no Docker engine answers: %w", err)
	}
	version, err := docker.ServerVersion(ctx)
	if err != nil {
		return "", nil, err
	}
	program, err := buildStep(ctx, version.Arch)
	if err != nil {
		return "", nil, err
	}
	name = "dlite-quickstart:" + strings.ToLower(rand.Text()[:10])
	if err := importImage(ctx, docker, name, program); err != nil {
		return "", nil, err
	}
	return name, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, err := docker.ImageRemove(ctx, name, image.RemoveOptions{Force: true, PruneChildren: true})
		return errors.Join(err, docker.Close())
	}, nil
}

// buildStep compiles the program with the Go version of this program.
func buildStep(ctx context.Context, arch string) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "dlite-quickstart-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for name, text := range map[string]string{"main.go": string(stepSource), "go.mod": "module step\n\ngo 1.21\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", "step", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the program for the image: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.ReadFile(filepath.Join(dir, "step"))
}

func importImage(ctx context.Context, docker *client.Client, name string, program []byte) (err error) {
	var root bytes.Buffer
	t := tar.NewWriter(&root)
	if err := t.WriteHeader(&tar.Header{Name: "step", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := t.Write(program); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	r, err := docker.ImageImport(ctx, image.ImportSource{Source: &root, SourceName: "-"}, name, image.ImportOptions{})
	if err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
