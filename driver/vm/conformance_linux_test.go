package vm_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	"github.com/delegate-io/dlite/internal/testbed"
)

// Rules D1 and D6: the conformance suite on machines of a pool, each with a separate agent.
// Their disks are directories of this host, so that the suite finds all remains.
func TestConformance(t *testing.T) {
	program := agentProgram(t)
	drivertest.Run(t, drivertest.Target{
		Site: func(tb testing.TB) drivertest.Site { return newSite(tb, program, vm.PoolConfig{Min: 1, Max: 12}) },
		Can:  drivertest.Capabilities{Users: true, Interleaved: true, Labels: true},
	})
}

// Rules D1 and D6: the same on reused machines.
func TestConformanceOnReusedMachines(t *testing.T) {
	program := agentProgram(t)
	drivertest.Run(t, drivertest.Target{
		Site: func(tb testing.TB) drivertest.Site {
			return newSite(tb, program, vm.PoolConfig{Min: 1, Max: 12, MaxUses: 100})
		},
		Can: drivertest.Capabilities{Users: true, Interleaved: true, Labels: true},
	})
}

// site is a pool of machines that are processes. It outlives the drivers that use it, like a
// cloud.
type site struct {
	dir      string
	cfg      vm.PoolConfig
	provider *vmtest.Processes
	network  *network // nil without a network between
	pool     *vm.Pool
}

// newSite starts a pool. At the end of tb, nothing of it may remain.
func newSite(tb testing.TB, program string, cfg vm.PoolConfig) *site {
	tb.Helper()
	return openSite(tb, tb.TempDir(), program, cfg)
}

func newSiteNamed(tb testing.TB, name, program string, cfg vm.PoolConfig) *site {
	tb.Helper()
	cfg.Name = name
	return newSite(tb, program, cfg)
}

// newSiteBehind puts a network between pool and machines.
func newSiteBehind(tb testing.TB, program string, cfg vm.PoolConfig) *site {
	tb.Helper()
	return startSite(tb, &site{dir: tb.TempDir(), cfg: cfg, network: newNetwork(tb)}, program)
}

// openSite is newSite in a directory that an earlier process may have used.
func openSite(tb testing.TB, dir, program string, cfg vm.PoolConfig) *site {
	tb.Helper()
	return startSite(tb, &site{dir: dir, cfg: cfg}, program)
}

func startSite(tb testing.TB, s *site, program string) *site {
	tb.Helper()
	if s.cfg.Name == "" {
		s.cfg.Name = "linux"
	}
	s.cfg.Dir = filepath.Join(s.dir, "pool")
	testbed.Keep(tb, s.dir)
	require.NoError(tb, os.MkdirAll(s.machines(), 0o711))
	for dir := s.dir; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		require.NoError(tb, os.Chmod(dir, 0o711)) //nolint:gosec // steps of other users need access
	}
	s.provider = vmtest.NewProcesses(s.machines(), program)
	s.pool = s.open(tb)
	tb.Cleanup(func() {
		s.close(tb)
		s.provider.Wait()
		left, err := filepath.Glob(filepath.Join(s.machines(), "*", "*"))
		assert.NoError(tb, err)
		assert.Empty(tb, left, "machines are left behind")
		left, err = filepath.Glob(filepath.Join(s.cfg.Dir, "dlite-*"))
		assert.NoError(tb, err)
		assert.Empty(tb, left, "records are left behind")
	})
	return s
}

func (s *site) machines() string { return filepath.Join(s.dir, "machines") }

func (s *site) open(tb testing.TB) *vm.Pool {
	tb.Helper()
	var provider vm.Provider = s.provider
	if s.network != nil {
		provider = &behind{s.provider, tb, s.network}
	}
	p, err := vm.NewPool(provider, s.cfg)
	require.NoError(tb, err)
	require.NoError(tb, p.Start(context.WithoutCancel(tb.Context())))
	return p
}

func (s *site) close(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
	defer cancel()
	assert.NoError(tb, s.pool.Close(ctx))
}

func (s *site) Driver(tb testing.TB) driver.Driver {
	tb.Helper()
	d, err := vm.New([]*vm.Pool{s.pool})
	require.NoError(tb, err)
	return d
}

func (s *site) Running(_ testing.TB, transaction string) []string {
	return testbed.ProcessesWith("environ", drivertest.TransactionVariable+"="+transaction+"\x00")
}

func (s *site) Remains(tb testing.TB, transaction string) []string {
	tb.Helper()
	found := testbed.FoldersOf(tb, transaction, filepath.Join(s.machines(), "*", "*"))
	for _, m := range s.records(tb) {
		if m.Claim.Transaction == transaction {
			found = append(found, "machine "+m.ID)
		}
	}
	return found
}

// record is the pool's record of a machine.
type record = vmtest.Record

func (s *site) records(tb testing.TB) []record {
	tb.Helper()
	return vmtest.Records(tb, s.cfg.Dir)
}

func (s *site) Has(tb testing.TB, r driver.Resource) bool {
	tb.Helper()
	return vmtest.Has(tb, s.cfg.Dir, r)
}

func (s *site) Traces(tb testing.TB, text string) []string {
	tb.Helper()
	found := testbed.ProcessesWith("cmdline", text)
	return append(found, testbed.FilesWith(tb, s.dir, text)...)
}
