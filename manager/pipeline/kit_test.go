package pipeline_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	account = "acme"
	secret  = "00000000000000000000000000000001"
)

// newManager starts a manager with a delegate that runs steps on this machine.
func newManager(tb testing.TB, slots int, change ...func(*host.Config)) *manager.Manager {
	tb.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(tb, err)
	server := httptest.NewServer(m)
	tb.Cleanup(func() {
		assert.NoError(tb, m.Close())
		server.Close()
	})
	startDelegate(tb, server.URL, slots, change...)
	return m
}

// newManagerWithLogs is like newManager, with a log service.
func newManagerWithLogs(tb testing.TB, slots int) (*manager.Manager, *logservice.Server) {
	tb.Helper()
	logs, err := logservice.New(logservice.Config{Authorize: logservice.Tokens(map[string]string{account: "fake-token"})})
	require.NoError(tb, err)
	logServer := httptest.NewServer(logs)
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}, Logs: func(account, _, _ string) *stage.LogConfig {
		return &stage.LogConfig{AccountID: account, URL: logServer.URL, Token: "fake-token"}
	}})
	require.NoError(tb, err)
	server := httptest.NewServer(m)
	tb.Cleanup(func() {
		assert.NoError(tb, m.Close())
		server.Close()
		assert.NoError(tb, logs.Close())
		logServer.Close()
	})
	if slots > 0 {
		startDelegate(tb, server.URL, slots)
	}
	return m, logs
}

func startDelegate(tb testing.TB, url string, slots int, change ...func(*host.Config)) {
	tb.Helper()
	c, err := client.New(url, account, secret)
	require.NoError(tb, err)
	steps := host.Config{WorkDir: filepath.Join(tb.TempDir(), "work")}
	for _, c := range change {
		c(&steps)
	}
	driver, err := local.New(local.Config{Host: steps})
	require.NoError(tb, err)
	stages := transaction.New(driver, transaction.WithSlots(capacity.NewSlots(slots)), transaction.WithLedger(tb.TempDir()))
	p := poller.New(c, router.New(stages.Routes(), router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{}))), poller.WithName("d"), poller.WithTags("linux", "amd64"), poller.WithStages(stages))
	info, err := p.Register(tb.Context())
	require.NoError(tb, err)
	polled := make(chan error, 1)
	go func() { polled <- p.Poll(context.WithoutCancel(tb.Context()), 16, info.ID, time.Second) }()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Shutdown(ctx) // Poll returns the relevant error
		if err := <-polled; err != nil {
			tb.Logf("the delegate ended: %v", err)
		}
		c.CloseIdleConnections()
	})
}

func newService(tb testing.TB, m pipeline.Manager, change ...func(*pipeline.Config)) *pipeline.Service {
	tb.Helper()
	cfg := pipeline.Config{Manager: m, Database: filepath.Join(tb.TempDir(), "pipelines.db")}
	for _, c := range change {
		c(&cfg)
	}
	s, err := pipeline.New(tb.Context(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, s.Close()) })
	return s
}

// oneStage returns a pipeline with one stage. Its steps are indented by 14 spaces.
func oneStage(id, steps string) string {
	return fmt.Sprintf(`pipeline:
  identifier: %s
  name: %[1]s
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        spec:
          platform: {os: Linux, arch: Amd64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
%s`, id, strings.TrimPrefix(steps, "\n"))
}

// run starts a pipeline and waits for its end.
func run(tb testing.TB, s *pipeline.Service, yaml string, change ...func(*api.RunRequest)) api.Run {
	tb.Helper()
	req := api.RunRequest{YAML: yaml}
	for _, c := range change {
		c(&req)
	}
	started, err := s.Start(tb.Context(), account, req)
	require.NoError(tb, err)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	ended, err := s.Wait(ctx, account, started.ID)
	if err != nil {
		ended, _ = s.Run(tb.Context(), account, started.ID)
		tb.Fatalf("%v\n%s", err, tree(ended))
	}
	return ended
}

// tree writes the nodes of a run with their statuses, one in a line.
func tree(r api.Run) string {
	var b strings.Builder
	for _, n := range r.Nodes {
		b.WriteString(strings.TrimPrefix(n.Path, "pipeline.stages.") + " " + n.Status)
		if n.Reason != "" {
			b.WriteString(" (" + n.Reason + ")")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// node returns a node by the end of its path.
func node(tb testing.TB, r api.Run, end string) api.Node {
	tb.Helper()
	for _, n := range r.Nodes {
		if strings.HasSuffix(n.Path, end) {
			return n
		}
	}
	tb.Fatalf("the run has no node %s:\n%s", end, tree(r))
	return api.Node{}
}
