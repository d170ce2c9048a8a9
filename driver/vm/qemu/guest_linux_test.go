package qemu_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
)

// patience limits the wait for a guest on a loaded machine.
const patience = 2 * time.Minute

const owner = "dlite-test-owner"

// config returns an emulated guest in memory, because results with acceleration would not
// hold on other machines.
func config(tb testing.TB, changes ...func(*qemu.Config)) qemu.Config {
	tb.Helper()
	guest := testbed.VM(tb)
	c := qemu.Config{
		StateDir: keptDir(tb), Binary: guest.QEMU, Accel: "tcg,tb-size=64", CPU: "qemu64", MemoryMB: 128,
		Kernel: guest.Kernel, Initrd: guest.Initrd, Append: guest.Append, Forward: []int{testbed.GuestSpyPort},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// keptDir returns a directory whose machines do not survive a killed test run.
func keptDir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	testbed.Keep(tb, dir)
	return dir
}

// onDisk puts the guest on a disk.
func onDisk(tb testing.TB) func(*qemu.Config) {
	guest := testbed.VM(tb)
	return func(c *qemu.Config) { c.Initrd, c.Image = guest.DiskInitrd, guest.Disk }
}

func withSnapshot(c *qemu.Config) { c.Snapshot = true }

// guest is a running machine.
type guest struct {
	vm.Machine
	id   string
	boot *agent.Boot
	data qemu.Data
}

// create creates a machine, which is destroyed with the test.
func create(tb testing.TB, p vm.Provider) *guest {
	tb.Helper()
	g := &guest{id: newID(), boot: newBoot(tb)}
	tb.Cleanup(func() { destroy(tb, p, g.id) })
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	m, err := p.Create(ctx, spec(g.id, g.boot))
	require.NoError(tb, err)
	g.Machine = m
	require.NoError(tb, json.Unmarshal(m.Data, &g.data))
	return g
}

func destroy(tb testing.TB, p vm.Provider, id string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	require.NoError(tb, p.Destroy(ctx, id))
}

func newID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	return "dlite-" + hex.EncodeToString(b)
}

func newBoot(tb testing.TB) *agent.Boot {
	tb.Helper()
	b := &agent.Boot{Seed: make([]byte, 32)}
	_, _ = rand.Read(b.Seed)
	var err error
	b.CA, b.Cert, b.Key, err = agent.Issue("", time.Now())
	require.NoError(tb, err)
	return b
}

func spec(id string, boot *agent.Boot) vm.Spec {
	return vm.Spec{ID: id, Owner: owner, Boot: func() []byte {
		now := *boot
		now.Time = time.Now().UnixNano()
		b, _ := json.Marshal(now)
		return b
	}}
}

// secrets are the parts of the boot that must not be found: the middle of the key, as it is, in
// JSON and as it was sent.
func (g *guest) secrets() []string {
	lines := strings.Split(string(g.boot.Key), "\n")
	sent := base64.StdEncoding.EncodeToString(g.boot.Key)
	return []string{lines[1], sent[len(sent)/2 : len(sent)/2+40]}
}

// healthy waits until the agent answers.
func (g *guest) healthy(tb testing.TB) {
	tb.Helper()
	tls, err := g.boot.ClientTLS("")
	require.NoError(tb, err)
	transport := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}
	var health agent.Health
	require.NoError(tb, json.Unmarshal(get(tb, transport, "https://"+g.Address+"/healthz"), &health))
	require.True(tb, health.OK)
	require.Equal(tb, "dlite", health.Agent)
}

// spy sends a request to the guest's spy.
func (g *guest) spy(tb testing.TB, path string, query ...string) []byte {
	tb.Helper()
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	return get(tb, &http.Transport{DisableKeepAlives: true}, "http://"+g.data.Forward[testbed.GuestSpyPort]+path+"?"+values.Encode())
}

// get retries until the guest answers, because QEMU accepts connections earlier.
func get(tb testing.TB, transport http.RoundTripper, address string) []byte {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	for again := time.NewTicker(20 * time.Millisecond); ; {
		body, err := getOnce(ctx, &client, address)
		if err == nil {
			again.Stop()
			return body
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			require.NoError(tb, err, "the guest does not answer")
		}
	}
}

func getOnce(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	return io.ReadAll(resp.Body)
}

// clockError returns the difference between the guest's clock and this machine's.
func (g *guest) clockError(tb testing.TB) time.Duration {
	tb.Helper()
	g.spy(tb, "/now") // the first answer may be slow
	before := time.Now()
	ns, err := strconv.ParseInt(string(g.spy(tb, "/now")), 10, 64)
	require.NoError(tb, err)
	switch there := time.Unix(0, ns); {
	case there.Before(before):
		return before.Sub(there)
	case there.After(time.Now()):
		return time.Until(there)
	}
	return 0
}

func entries(tb testing.TB, dir string) []string {
	tb.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(tb, err)
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
