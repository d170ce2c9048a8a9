//go:build unix

package local_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule D1: the conformance suite with separated host processes, without Docker.
func TestConformanceOfSeparatedSteps(t *testing.T) {
	can := drivertest.Capabilities{HostFolders: true, FolderRemoval: true, Interleaved: true, Separated: true, Users: os.Geteuid() == 0}
	drivertest.Run(t, drivertest.Target{
		Name: "separated host",
		Site: func(tb testing.TB) drivertest.Site {
			s := newSite(tb, nil)
			s.separated = true
			return s
		},
		Can: can,
	})
}

// Rule D1: the conformance suite with host processes, without Docker.
func TestConformanceOnTheHost(t *testing.T) {
	can := drivertest.Capabilities{HostFolders: true, FolderRemoval: true, Interleaved: true, Users: os.Geteuid() == 0}
	drivertest.Run(t, drivertest.Target{
		Name: "host",
		Site: func(tb testing.TB) drivertest.Site { return newSite(tb, nil) },
		Can:  can,
	})
}

// Rule D1: the conformance suite with containers.
func TestConformanceOnDocker(t *testing.T) {
	engine := testbed.Docker(t)
	drivertest.Run(t, drivertest.Target{
		Name: "docker",
		Site: func(tb testing.TB) drivertest.Site { return newSite(tb, engine) },
		Step: func(step *stage.Step) { step.Image, step.Pull = engine.Image, "Never" },
		Can: drivertest.Capabilities{
			OOM: true, Users: true, Mounts: true, HostFolders: true, FolderRemoval: true, Names: true, IsolatedNetwork: true, Labels: true,
			Separated: true,
		},
	})
}

// site is this machine, with its own directories.
type site struct {
	work, memory string
	engine       *testbed.Engine // nil if no case may need one
	separated    bool
}

func newSite(tb testing.TB, engine *testbed.Engine) *site {
	tb.Helper()
	s := &site{engine: engine}
	s.work, s.memory = testbed.StageFolders(tb)
	return s
}

func (s *site) Driver(tb testing.TB) driver.Driver {
	tb.Helper()
	if s.engine == nil {
		d, err := host.New(host.Config{WorkDir: s.work, MemoryDir: s.memory, Trusted: !s.separated})
		require.NoError(tb, err)
		return d
	}
	d, err := newDriver(withWorkDir(s.work), withMemoryDir(s.memory))
	require.NoError(tb, err)
	return d
}

func (s *site) Running(tb testing.TB, transaction string) []string {
	tb.Helper()
	found := testbed.ProcessesWith("environ", drivertest.TransactionVariable+"="+transaction+"\x00")
	if s.engine != nil {
		for _, what := range s.engine.Leftovers(tb, transaction) {
			if strings.HasPrefix(what, "container") && strings.HasSuffix(what, "(running)") {
				found = append(found, what)
			}
		}
	}
	return found
}

func (s *site) Remains(tb testing.TB, transaction string) []string {
	tb.Helper()
	found := testbed.FoldersOf(tb, transaction, s.work, s.memory)
	if s.engine != nil {
		found = append(found, s.engine.Leftovers(tb, transaction)...)
	}
	return found
}

func (s *site) Has(tb testing.TB, r driver.Resource) bool {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	switch r.Kind {
	case "process":
		return len(testbed.ProcessesWith("environ", "DLITE_PROCESS="+r.ID+"\x00")) > 0
	case "container":
		_, err := s.engine.Client.ContainerInspect(ctx, r.ID)
		return err == nil
	case "network":
		_, err := s.engine.Client.NetworkInspect(ctx, r.ID, network.InspectOptions{})
		return err == nil
	}
	_, err := os.Lstat(r.ID)
	return err == nil
}

// Traces does not search the engine's data about a container: the engine always writes the environment
// of a container to its own disk.
func (s *site) Traces(tb testing.TB, text string) []string {
	tb.Helper()
	found := testbed.ProcessesWith("cmdline", text)
	if s.engine != nil {
		list, err := s.engine.Client.ContainerList(tb.Context(), container.ListOptions{All: true})
		require.NoError(tb, err)
		for _, c := range list {
			if strings.Contains(c.Command, text) {
				found = append(found, "command line of container "+c.ID)
			}
		}
	}
	return append(found, testbed.FilesWith(tb, s.work, text)...)
}
