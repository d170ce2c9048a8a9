package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/task/stage"
)

// droneSecret is visibly fake.
const droneSecret = "fake-drone-secret"

const droneOnly = "DRONE_RPC_PROTO=http\nDRONE_RPC_SECRET=" + droneSecret + "\nDRONE_RPC_HOST="

func TestADroneServerNeedsNoManager(t *testing.T) {
	t.Parallel()
	c, warnings, err := load(t, droneOnly+"127.0.0.1:1\nDRONE_RUNNER_CAPACITY=3\nDRONE_RUNNER_NAME=r\nDRONE_RUNNER_LABELS=a:b,c:d\n")
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.False(t, c.managed())
	assert.EqualValues(t, 3, c.MaxStages)
	assert.Equal(t, "r", c.Name)
	assert.Equal(t, map[string]string{"a": "b", "c": "d"}, c.DroneLabels)

	c, _, err = load(t, droneOnly+"127.0.0.1:1\n")
	require.NoError(t, err)
	assert.EqualValues(t, droneCapacity, c.MaxStages, "the default of Drone's runners")

	c, _, err = load(t, required+droneOnly+"127.0.0.1:1\n")
	require.NoError(t, err)
	assert.True(t, c.managed())
	assert.Zero(t, c.MaxStages)
}

func TestDroneSettingsWithoutMeaningAreNamed(t *testing.T) {
	t.Parallel()
	_, warnings, err := load(t, droneOnly+"127.0.0.1:1\nDRONE_RPC_SKIP_VERIFY=true\n", "DRONE_UI_USERNAME=a")
	require.NoError(t, err)
	assert.Contains(t, strings.Join(warnings, "\n"), "DRONE_RPC_SKIP_VERIFY has no effect")
	assert.Contains(t, strings.Join(warnings, "\n"), "DRONE_UI_USERNAME has no effect")
	assert.NotContains(t, strings.Join(warnings, "\n"), "DRONE_RPC_HOST")
	_, warnings, err = load(t, droneOnly+"127.0.0.1:1\n", "DRONE_RUNNER_OTHER=a", "DRONE_RUNNER_OS=linux", "DRONE_BUILD_NUMBER=7")
	require.NoError(t, err)
	assert.Equal(t, []string{`DRONE_RUNNER_OTHER has no effect: "delegate settings" lists the valid settings`}, warnings)
	for setting, message := range map[string]string{
		"DRONE_LIMIT_REPOS=[":                              "DRONE_LIMIT_REPOS: it must be a list of patterns",
		"DRONE_SECRET_PLUGIN_ENDPOINT=p.example":           "DRONE_SECRET_PLUGIN_ENDPOINT: it must be an address that begins with",
		"DRONE_REGISTRY_PLUGIN_ENDPOINT=https://p.example": "DRONE_REGISTRY_PLUGIN_TOKEN: it must be set",
		"DRONE_ENV_PLUGIN_TOKEN=" + droneSecret:            "DRONE_ENV_PLUGIN_ENDPOINT: it must be set",
		"DRONE_RUNNER_SECRETS=" + droneSecret:              "DRONE_RUNNER_SECRETS: the entry 1 must be of the form name:value",
		"DRONE_RPC_PROTO=ftp":                              "DRONE_RPC_PROTO: it must be https or http",
		"DRONE_RPC_SECRET=":                                "DRONE_RPC_SECRET: it must be set",
		"DRONE_RPC_HOST=https://d.example":                 "DRONE_RPC_HOST: it must be an address without a scheme",
		"DRONE_RUNNER_TYPES=ssh":                           "DRONE_RUNNER_TYPES: it must be a list of docker, exec",
		"DRONE_RUNNER_CAPACITY=0":                          "must be a positive integer",
		"DRONE_RUNNER_LABEL=a:b":                           "did you mean DRONE_RUNNER_LABELS?",
	} {
		_, _, err := load(t, droneOnly+"127.0.0.1:1\n"+setting+"\n")
		require.ErrorContains(t, err, message, setting)
		assert.NotContains(t, err.Error(), droneSecret)
	}
}

// execPipeline has one step on the host.
const execPipeline = "kind: pipeline\ntype: exec\nname: default\nclone:\n  disable: true\nsteps:\n- name: hello\n  commands:\n  - echo hello from $DRONE_REPO\n"

func TestTheDelegateServesADroneServer(t *testing.T) {
	t.Parallel()
	stage, text := runDrone(t, execPipeline)
	assert.Equal(t, "success", stage.Status, stage.Error)
	assert.Contains(t, text, "hello from octo/hello")
}

// runDrone runs a pipeline of one step by a delegate with settings. It returns the stage and the log of the step.
func runDrone(t *testing.T, pipeline string, settings ...string) (dronetest.Stage, string) {
	t.Helper()
	s := dronetest.New(droneSecret)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.env")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf("%s%s\nLEDGER_DIR=%s\nWORK_DIR=%s\nHTTP_BIND=off\nLOG_LEVEL=error\nTRUSTED_STEPS=true\n%s\n",
		droneOnly, strings.TrimPrefix(s.URL, "http://"), filepath.Join(dir, "ledger"), filepath.Join(dir, "work"), strings.Join(settings, "\n"))), 0o600))
	cfg, _, err := loadConfig(file, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- serve(ctx, cfg, func(*poller.Poller) {}) }()
	build := s.Add(dronetest.Build{Type: "exec", Config: pipeline})
	waiting, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	stages, err := s.Wait(waiting, build)
	cancel()
	require.NoError(t, <-over)
	require.NoError(t, err, "%+v", stages)
	var text strings.Builder
	for _, step := range stages[0].Steps {
		for _, l := range step.Log {
			text.WriteString(l.Out)
		}
	}
	return stages[0], text.String()
}

// Secrets and variables come from the settings and from plugins.
func TestDroneSettingsReachTheSteps(t *testing.T) {
	t.Parallel()
	plugin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, map[string]string{
			"application/vnd.drone.secret.v1+json":   `{"data":"visibly-fake-external"}`,
			"application/vnd.drone.env.v2+json":      `[{"name":"OF_PLUGIN","data":"of-plugin"}]`,
			"application/vnd.drone.registry.v1+json": `[{"address":"r.example","username":"octo","password":"visibly-fake-password"}]`,
		}[r.Header.Get("Accept")])
	}))
	t.Cleanup(plugin.Close)
	docker := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(docker, []byte(`{"auths":{}}`), 0o600))
	settings := []string{"DRONE_RUNNER_SECRETS=own:visibly-fake-own", "DRONE_RUNNER_ENVIRON=OF_RUNNER:of-runner", "DRONE_LIMIT_EVENTS=push", "DRONE_DOCKER_CONFIG=" + docker}
	for _, kind := range []string{"SECRET", "REGISTRY", "ENV"} {
		settings = append(settings, "DRONE_"+kind+"_PLUGIN_ENDPOINT="+plugin.URL, "DRONE_"+kind+"_PLUGIN_TOKEN=fake-token")
	}
	const pipeline = `kind: pipeline
type: exec
name: default
clone: {disable: true}
steps:
- name: a
  environment: {OWN: {from_secret: own}, EXTERNAL: {from_secret: external}}
  commands:
  - test "$OWN" = "visibly-fake"-own
  - test "$EXTERNAL" = "visibly-fake"-external
  - echo "$OF_PLUGIN $OF_RUNNER $OWN $EXTERNAL visibly-fake-password"
---
kind: secret
name: external
get: {path: a, name: b}
`
	stage, text := runDrone(t, pipeline, settings...)
	assert.Equal(t, "success", stage.Status, stage.Error)
	assert.Contains(t, text, "of-plugin of-runner")
	for _, value := range []string{"visibly-fake-own", "visibly-fake-external", "visibly-fake-password"} {
		assert.NotContains(t, text, value)
	}
	stage, _ = runDrone(t, pipeline, append(settings, "DRONE_LIMIT_REPOS=other/*")...)
	assert.Equal(t, "error", stage.Status)
	assert.Contains(t, stage.Error, `does not run builds of the repository "octo/hello"`)
	stage, _ = runDrone(t, pipeline, append(settings, "DRONE_LIMIT_TRUSTED=true")...)
	assert.Contains(t, stage.Error, "only builds of trusted repositories")
}

// The delegate serves a manager and a Drone server at once, on one slot.
func TestTheDelegateServesBothServers(t *testing.T) {
	t.Parallel()
	s := dronetest.New(droneSecret)
	t.Cleanup(s.Close)
	addr := freeAddress(t)
	r := start(t, droneOnly+strings.TrimPrefix(s.URL, "http://")+"\nDRONE_RUNNER_CAPACITY=1\nTRUSTED_STEPS=true\nHTTP_BIND="+addr+"\n", bothSignal)
	p := <-r.pollers
	waiting, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var all sync.WaitGroup
	for range 4 {
		build := s.Add(dronetest.Build{Type: "exec", Config: execPipeline})
		all.Go(func() {
			stages, err := s.Wait(waiting, build)
			assert.NoError(t, err)
			assert.Equal(t, "success", stages[0].Status, stages[0].Error)
		})
		all.Go(func() {
			_, err := r.RunStage(waiting, clienttest.Stage{Steps: []stage.Step{
				{Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo hello"}}},
			}})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	body := fetch(t, "http://"+addr+"/metrics", http.StatusOK)
	for _, server := range []string{"manager", "drone"} {
		assert.Regexp(t, `(?m)^dlite_tasks_acquired_total{server="`+server+`"} [1-9]`, body)
	}
	assert.Contains(t, body, `dlite_slots{server="manager"} 1`)
	r.signal(bothSignal)
	require.NoError(t, r.wait())
	assert.False(t, p.Health().Polling)
	left, err := os.ReadDir(r.workDir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
