package main

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client/drone/dronetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pipeline = `
kind: pipeline
type: script
name: other
---
kind: pipeline
type: script
name: default
steps:
- name: hello
  run: echo "hello from $DRONE_REPO" | tee greeting
- name: again
  run: cat greeting
- name: fail
  run: exit 3
- name: never
  run: echo never
`

func TestTheRunnerRunsItsOwnPipelines(t *testing.T) {
	t.Parallel()
	const secret = "visibly-fake-secret"
	s := dronetest.New(secret)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- run(ctx, s.URL, secret, dir) }()
	build := dronetest.Build{Type: "script", Config: pipeline, OS: runtime.GOOS, Arch: runtime.GOARCH}
	waiting, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for range 3 { // more than the slots
		stages, err := s.Wait(waiting, s.Add(build))
		require.NoError(t, err, "%+v", stages)
		got := stages[0]
		assert.Equal(t, "failure", got.Status, got.Error)
		assert.Equal(t, 3, got.ExitCode)
		var ended []string
		for _, step := range got.Steps {
			ended = append(ended, step.Name+" "+step.Status)
		}
		assert.Equal(t, "hello success, again success, fail failure, never skipped", strings.Join(ended, ", "))
		require.Len(t, got.Steps[1].Log, 1)
		assert.Equal(t, "hello from octo/hello\n", got.Steps[1].Log[0].Out)
	}
	cancel()
	require.NoError(t, <-over)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
