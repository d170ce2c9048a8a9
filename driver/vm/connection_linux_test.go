package vm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
)

// Rule D6: the pool connects to a warm machine in advance, and the claim uses that
// connection. A lost connection, reported or not, costs no machine.
func TestAWarmMachineIsConnected(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(*network){
		"it lives": nil, "it is closed": func(n *network) { n.cut(true) }, "it is lost": (*network).lose,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteBehind(t, agentProgram(t), vm.PoolConfig{Min: 1, Max: 1, HealthTimeout: time.Minute, HealthInterval: time.Hour})
			require.Eventually(t, func() bool { return s.pool.Connected() == 1 }, time.Minute, time.Millisecond, "the pool does not connect to a warm machine")
			warm := s.records(t)[0].ID
			before := s.network.connections()
			if die != nil {
				die(s.network)
			}
			st := begin(t, newDriver(t, []*vm.Pool{s.pool}))
			require.Equal(t, warm, st.machine())
			if die == nil {
				require.Equal(t, before, s.network.connections(), "the claim has made a connection")
			}
		})
	}
}
