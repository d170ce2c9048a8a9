package vm_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
)

// Rule L3: the metrics of a pool that was not started exist with the value 0.
func TestPoolsHaveMetricsBeforeTheirStart(t *testing.T) {
	t.Parallel()
	p, err := vm.NewPool(struct{ vm.Provider }{}, vm.PoolConfig{Name: "linux", Dir: t.TempDir(), Max: 3})
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	names := regexp.MustCompile("dlite_vm_[a-z_]+").FindAllString(string(page), -1)
	slices.Sort(names)
	names = slices.Compact(names)
	require.Equal(t, []string{
		"dlite_vm_cost_total", "dlite_vm_failures_total", "dlite_vm_machine_seconds_total", "dlite_vm_machines", "dlite_vm_minimum",
		"dlite_vm_stages_total", "dlite_vm_waiting",
	}, names)
	require.NoError(t, testutil.CollectAndCompare(vm.Metrics(p), strings.NewReader(`
# HELP dlite_vm_failures_total Failures of making a machine, of its health and of destroying it.
# TYPE dlite_vm_failures_total counter
dlite_vm_failures_total{pool="linux"} 0
# HELP dlite_vm_machine_seconds_total Time of the machines of a pool by use: stage, idle, other (being created or destroyed).
# TYPE dlite_vm_machine_seconds_total counter
dlite_vm_machine_seconds_total{pool="linux",use="idle"} 0
dlite_vm_machine_seconds_total{pool="linux",use="other"} 0
dlite_vm_machine_seconds_total{pool="linux",use="stage"} 0
# HELP dlite_vm_machines Machines of a pool by state: warm, reserved, claimed, creating, destroying.
# TYPE dlite_vm_machines gauge
dlite_vm_machines{pool="linux",state="claimed"} 0
dlite_vm_machines{pool="linux",state="creating"} 0
dlite_vm_machines{pool="linux",state="destroying"} 0
dlite_vm_machines{pool="linux",state="reserved"} 0
dlite_vm_machines{pool="linux",state="warm"} 0
# HELP dlite_vm_minimum Warm machines that the settings, the schedule and the waiting stages ask for.
# TYPE dlite_vm_minimum gauge
dlite_vm_minimum{pool="linux"} 0
# HELP dlite_vm_stages_total Transactions that had a machine of a pool.
# TYPE dlite_vm_stages_total counter
dlite_vm_stages_total{pool="linux"} 0
# HELP dlite_vm_waiting Transactions that wait for a machine of a pool.
# TYPE dlite_vm_waiting gauge
dlite_vm_waiting{pool="linux"} 0
`)))
}
