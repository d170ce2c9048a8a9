package qemu_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
)

// Rules D1 and D6: the conformance suite on real machines with a disk, which continue a
// snapshot. All cases use one pool.
func TestConformance(t *testing.T) {
	s := newSite(t, config(t, onDisk(t), withSnapshot), vm.PoolConfig{Min: 2, Max: 12, Parallel: 2})
	drivertest.Run(t, drivertest.Target{
		Name: "vm",
		Site: func(testing.TB) drivertest.Site { return s },
		Can:  drivertest.Capabilities{Users: true, Interleaved: true, Separated: true},
	})
}

// site is a pool of machines that outlives the drivers that use it.
type site struct {
	dir      string // state directory of the provider
	cfg      vm.PoolConfig
	provider *watched
	pool     *vm.Pool
}

// watched records the addresses of the spies of its machines.
type watched struct {
	vm.Provider

	mu    sync.Mutex
	spies map[string]string // by machine; guarded by mu
}

func (w *watched) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	m, err := w.Provider.Create(ctx, spec)
	if err != nil {
		return m, err
	}
	var data qemu.Data
	err = json.Unmarshal(m.Data, &data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spies[spec.ID] = data.Forward[testbed.GuestSpyPort]
	return m, err
}

func (w *watched) Destroy(ctx context.Context, id string) error {
	err := w.Provider.Destroy(ctx, id)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.spies, id)
	}
	return err
}

func (w *watched) all() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]string{}
	for id, spy := range w.spies {
		all[id] = spy
	}
	return all
}

// newSite starts a pool. At the end of tb, nothing of it may remain.
func newSite(tb testing.TB, c qemu.Config, cfg vm.PoolConfig) *site {
	tb.Helper()
	s := &site{dir: c.StateDir, cfg: cfg, provider: &watched{Provider: open(tb, c), spies: map[string]string{}}}
	s.cfg.Name, s.cfg.Dir = "linux", filepath.Join(tb.TempDir(), "pool")
	s.cfg.HealthTimeout = 30 * time.Second // an emulated machine on a busy host
	s.pool = s.open(tb)
	tb.Cleanup(func() {
		s.close(tb)
		assert.Empty(tb, entries(tb, filepath.Join(s.dir, "machines")), "machines are left behind")
		left, err := filepath.Glob(filepath.Join(s.cfg.Dir, "dlite-*"))
		assert.NoError(tb, err)
		assert.Empty(tb, left, "records are left behind")
		for _, line := range testbed.CommandLines(s.dir) {
			assert.Fail(tb, "a process is left behind", line)
		}
	})
	return s
}

func (s *site) open(tb testing.TB) *vm.Pool {
	tb.Helper()
	p, err := vm.NewPool(s.provider, s.cfg)
	require.NoError(tb, err)
	require.NoError(tb, p.Start(context.WithoutCancel(tb.Context())))
	return p
}

func (s *site) close(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	assert.NoError(tb, s.pool.Close(ctx))
}

func (s *site) Driver(tb testing.TB) driver.Driver {
	tb.Helper()
	d, err := vm.New([]*vm.Pool{s.pool})
	require.NoError(tb, err)
	return d
}

// ask requests a list from the spies of all machines. A machine that has ended returns
// nothing.
func (s *site) ask(tb testing.TB, path string, query ...string) []string {
	tb.Helper()
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var found []string
	for id, spy := range s.provider.all() {
		text, err := getOnce(ctx, &client, "http://"+spy+path+"?"+values.Encode())
		if err != nil {
			// connections end shortly before their process
			const moment = 5 * time.Second
			require.Eventually(tb, func() bool {
				alive, unknown := s.provider.Alive(ctx, id)
				return unknown == nil && !alive
			}, moment, 10*time.Millisecond, "the spy of %s does not answer: %v", id, err)
			continue
		}
		var list []string
		require.NoError(tb, json.Unmarshal(text, &list), "%s", text)
		for _, what := range list {
			found = append(found, id+":"+what)
		}
	}
	return found
}

func (s *site) Running(tb testing.TB, transaction string) []string {
	tb.Helper()
	return s.ask(tb, "/processes", "file", "environ", "text", drivertest.TransactionVariable+"="+transaction+"\x00")
}

func (s *site) Remains(tb testing.TB, transaction string) []string {
	tb.Helper()
	sum := sha256.Sum256([]byte(transaction))
	var found []string
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		found = append(found, s.ask(tb, "/paths", "pattern", dir+"/dlite-"+hex.EncodeToString(sum[:6])+"-*")...)
	}
	for _, r := range vmtest.Records(tb, s.cfg.Dir) {
		if r.Claim.Transaction == transaction {
			found = append(found, "machine "+r.ID)
		}
	}
	return found
}

func (s *site) Has(tb testing.TB, r driver.Resource) bool {
	tb.Helper()
	return vmtest.Has(tb, s.cfg.Dir, r)
}

// Traces searches the disks inside the machines and their files on this host. It skips the
// snapshot, which is older than all texts.
func (s *site) Traces(tb testing.TB, text string) []string {
	tb.Helper()
	found := append(testbed.CommandLines(text), s.ask(tb, "/processes", "file", "cmdline", "text", text)...)
	found = append(found, s.ask(tb, "/files", "below", "/tmp", "text", text)...)
	for _, dir := range []string{filepath.Join(s.dir, "machines"), s.cfg.Dir} {
		found = append(found, testbed.FilesWith(tb, dir, text)...)
	}
	return found
}
