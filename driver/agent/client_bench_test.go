//go:build unix

package agent_test

import (
	"context"
	"io"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
)

// records is a ledger in memory.
type records struct {
	mu   sync.Mutex
	list []driver.Resource
}

func (l *records) Record(_ context.Context, r driver.Resource) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r)
	return nil
}

// BenchmarkStep runs one step on the host: with the driver alone, and through an agent with the
// same driver over mutual TLS.
func BenchmarkStep(b *testing.B) { benchmarkBoth(b, "true", 0) }

// BenchmarkOutput runs a step that prints 64 MiB.
func BenchmarkOutput(b *testing.B) {
	benchmarkBoth(b, "head -c 67108864 /dev/zero", 64<<20)
}

func benchmarkBoth(b *testing.B, text string, size int64) {
	b.Run("driver", func(b *testing.B) {
		s := newSite(b)
		d, err := local.New(local.Config{Host: host.Config{WorkDir: s.work, MemoryDir: s.memory}, Docker: local.DockerConfig{Host: "unix:///no/such/engine.sock"}})
		require.NoError(b, err)
		env, l := &driver.Environment{ID: b.Name()}, &records{}
		require.NoError(b, d.Init(b.Context(), env, l))
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			res, err := d.Execute(b.Context(), env, &driver.Step{Step: script("step", text).Step}, io.Discard, l)
			require.NoError(b, err)
			require.Zero(b, res.ExitCode)
		}
		_, err = d.Cleanup(context.WithoutCancel(b.Context()), l.list)
		require.NoError(b, err)
		require.NoError(b, d.Close())
	})
	b.Run("agent", func(b *testing.B) {
		m, err := newSite(b).newMachine(b.Name())
		require.NoError(b, err)
		cfg, err := m.boot.ClientTLS("")
		require.NoError(b, err)
		transport := agent.Transport(cfg)
		c := agent.NewClient("https://"+m.address, transport)
		_, err = c.Setup(b.Context(), &agent.SetupRequest{ID: b.Name()})
		require.NoError(b, err)
		b.SetBytes(size)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			req := script("step", text)
			n++
			req.Key = strconv.Itoa(n)
			res, err := c.Run(b.Context(), req, io.Discard)
			require.NoError(b, err)
			require.Zero(b, res.ExitCode)
		}
		transport.CloseIdleConnections()
		require.NoError(b, m.end())
	})
}
