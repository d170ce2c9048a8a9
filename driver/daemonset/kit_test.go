//go:build unix

package daemonset_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// stand is a delegate with a manager.
type stand struct {
	*testing.T
	srv     *clienttest.Server
	log     *testbed.Events
	runner  *daemonset.Runner
	metrics *prometheus.Registry
	journal string // directory of the daemons' journals
	cfg     daemonset.Config
	stop    func()
}

// thisProgram is the program of each config.
func thisProgram(context.Context, json.RawMessage) (*exec.Cmd, func(), error) {
	self, err := os.Executable()
	return &exec.Cmd{Path: self, Args: []string{self}}, func() {}, err
}

// newStand starts a delegate. The change of the config may be nil.
func newStand(t *testing.T, change func(*daemonset.Config)) *stand {
	t.Helper()
	s := newStopped(t, change, clienttest.Config{})
	s.start()
	return s
}

// newStopped is newStand without the start of the delegate.
func newStopped(t *testing.T, change func(*daemonset.Config), manager clienttest.Config) *stand {
	t.Helper()
	s := &stand{T: t, srv: manager.NewServer(), log: testbed.NewEvents(), journal: t.TempDir()}
	t.Cleanup(s.srv.Close)
	s.cfg = daemonset.Config{
		State: filepath.Join(t.TempDir(), "daemons"), Programs: thisProgram,
		HealthInterval: 50 * time.Millisecond, Pause: 10 * time.Millisecond, MaxPause: 50 * time.Millisecond,
		StartTimeout: time.Minute, Grace: 30 * time.Second, Log: zerolog.New(s.log),
	}
	if change != nil {
		change(&s.cfg)
	}
	s.stop = func() {}
	t.Cleanup(func() { s.stop() })
	return s
}

// start starts the delegate, again after a stop.
func (s *stand) start() {
	s.Helper()
	var err error
	s.runner, err = daemonset.New(s.cfg)
	require.NoError(s, err)
	c, err := client.New(s.srv.URL, s.srv.Account, s.srv.Secret)
	require.NoError(s, err)
	log := zerolog.New(s.log)
	p := poller.New(c, router.New(s.runner.Routes(), router.Standard(log, routersecrets.Resolve(secrets.ResolverConfig{}))),
		poller.WithDaemons(s.runner), poller.WithLogger(log), poller.WithName("d"))
	s.metrics = prometheus.NewPedanticRegistry()
	s.metrics.MustRegister(metrics.Poller(p, nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, 1) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(s, err)
		case <-time.After(2 * time.Minute):
			require.FailNow(s, "the delegate does not stop", "%s", s.log)
		}
		c.CloseIdleConnections()
	})
}

// set returns a daemon set that runs the test's program.
func (s *stand) set(id, mode string, change func(map[string]any), tasks ...string) task.DaemonSet {
	config := map[string]any{
		"executable_config": map[string]any{"name": "x", "executables": []any{}},
		"envs":              []string{journalVariable + "=" + s.journal, modeVariable + "=" + mode, "GREETING=hello " + id},
	}
	if change != nil {
		change(config)
	}
	b, err := json.Marshal(config)
	require.NoError(s, err)
	return task.DaemonSet{ID: id, Type: "type-" + id, Config: b, TaskIDs: tasks}
}

// metric returns the value of a metric. State is its label, or "".
func (s *stand) metric(name, state string) float64 {
	s.Helper()
	families, err := s.metrics.Gather()
	require.NoError(s, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (state == "" || m.GetLabel()[0].GetValue() == state) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	require.FailNow(s, "there is no metric", "%s %s", name, state)
	return 0
}

func payload(id string) *task.Task {
	return &task.Task{ID: id, Type: "x", Data: json.RawMessage(`{"of":"` + id + `"}`)}
}

// report waits for a report of the delegate.
func (s *stand) report(what string, ok func([]task.DaemonReport) bool) []task.DaemonReport {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	got, err := s.srv.WaitDaemonReports(ctx, ok)
	require.NoError(s, err, "%s: %s", what, s.log)
	return got
}

func healthy(ids ...string) func([]task.DaemonReport) bool {
	return func(all []task.DaemonReport) bool {
		if len(all) != len(ids) {
			return false
		}
		for i, id := range ids {
			if all[i].ID != id || !all[i].Healthy || all[i].Error != "" {
				return false
			}
		}
		return true
	}
}

// journals returns the actions of each process of a daemon, in the order of the starts of the processes. Names without a
// process id come first.
func (s *stand) journals() []string {
	s.Helper()
	entries, err := os.ReadDir(s.journal)
	require.NoError(s, err)
	pid := func(e os.DirEntry) (n int) {
		_, _ = fmt.Sscan(e.Name(), &n)
		return n
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(pid(a), pid(b)) })
	out := make([]string, len(entries))
	for i, e := range entries {
		b, err := os.ReadFile(filepath.Join(s.journal, e.Name()))
		require.NoError(s, err)
		out[i] = strings.TrimSpace(string(b))
	}
	return out
}

// await waits until ok holds. It looks again after each event of the log and each report.
func (s *stand) await(what string, ok func() bool) {
	s.Helper()
	timeout := time.After(time.Minute)
	for !ok() {
		select {
		case <-s.log.Wrote():
		case <-time.After(20 * time.Millisecond):
		case <-timeout:
			require.FailNow(s, "timed out", "%s: %q %s", what, s.journals(), s.log)
		}
	}
}
