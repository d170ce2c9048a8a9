package vmtest_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	"github.com/delegate-io/dlite/internal/testbed"
)

// Rule D6: the processes pass the suite for providers, which shows that a provider can pass
// it.
func TestProcessesAreMachines(t *testing.T) {
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "namespaces need root")
	}
	agent, dir := testbed.BuildStatic(t, "./examples/agent"), t.TempDir()
	testbed.Keep(t, dir)
	vmtest.TestProvider(t, func(tb testing.TB) vm.Provider {
		p := vmtest.NewProcesses(dir, agent)
		tb.Cleanup(p.Wait)
		return p
	})
}

// Rule D6: a machine counts as alive as soon as Create returns, also while its first process
// starts the agent. If it is destroyed then, it is gone.
func TestAMachineIsSeenWhileItStarts(t *testing.T) {
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "namespaces need root")
	}
	dir := t.TempDir()
	testbed.Keep(t, dir)
	p := vmtest.NewProcesses(dir, testbed.BuildStatic(t, "./examples/agent"))
	boot := agent.Boot{Seed: []byte(rand.Text())}
	var err error
	boot.CA, boot.Cert, boot.Key, err = agent.Issue("", time.Now())
	require.NoError(t, err)
	text, err := json.Marshal(&boot)
	require.NoError(t, err)
	for range 50 {
		id := "dlite-" + strings.ToLower(rand.Text())
		_, err := p.Create(t.Context(), vm.Spec{ID: id, Owner: "dlite-owner", Boot: func() []byte { return text }})
		require.NoError(t, err)
		for range 20 {
			alive, err := p.Alive(t.Context(), id)
			require.NoError(t, err)
			if !assert.True(t, alive, "a machine that has just been started") {
				break
			}
		}
		require.NoError(t, p.Destroy(t.Context(), id))
	}
	p.Wait()
}
