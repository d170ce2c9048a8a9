package vm_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule D6: the agent in a real machine finds the notice of the metadata service. The step fails at once, as lost, and the
// next transaction gets another machine.
func TestTheAgentReportsAnInterruption(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines")
	}
	t.Parallel()
	var ending atomic.Bool
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			_, _ = w.Write([]byte("not-a-real-token"))
		case r.URL.Path == "/latest/meta-data/spot/instance-action" && ending.Load():
			_, _ = w.Write([]byte(`{"action":"terminate","time":"2026-11-23T08:22:00Z"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(metadata.Close)
	_, port, err := net.SplitHostPort(metadata.Listener.Addr().String())
	require.NoError(t, err)

	dir := t.TempDir()
	testbed.Keep(t, dir)
	c, _ := virtual(t, dir)
	p, err := qemu.New(*c)
	require.NoError(t, err)
	pool, err := vm.NewPool(p, vm.PoolConfig{
		Name: "spot", Dir: filepath.Join(dir, "pool"), Max: 2, HealthTimeout: 30 * time.Second,
		Metadata: "http://10.0.2.2:" + port, // this machine's loopback address, as QEMU shows it to the guest
	})
	require.NoError(t, err)
	require.NoError(t, pool.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	s := begin(t, newDriver(t, []*vm.Pool{pool}))
	out := newLines()
	failed := make(chan error, 1)
	go func() {
		_, err := s.execute(sh("long", "echo begun; sleep 600"), out)
		failed <- err
	}()
	out.expect(t, "begun")
	ending.Store(true)
	select {
	case err = <-failed:
	case <-time.After(2 * time.Minute):
		t.Fatal("the step does not fail")
	}
	require.ErrorContains(t, err, "the cloud takes the machine away (\"terminate\" at 2026-11-23T08:22:00Z)")
	var kind interface{ FailureKind() string }
	require.ErrorAs(t, err, &kind)
	require.Equal(t, stage.FailureDelegateLost, kind.FailureKind())
	ending.Store(false)
	lost := s.machine()
	s.cleanup()
	second := begin(t, newDriver(t, []*vm.Pool{pool}))
	require.NotEqual(t, lost, second.machine())
}
