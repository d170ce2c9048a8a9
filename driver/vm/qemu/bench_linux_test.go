package qemu_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm/qemu"
)

// BenchmarkToAnAgentThatAnswers measures the time from a Create to an answer of the agent
// (rule D6), emulated, with an existing snapshot.
func BenchmarkToAnAgentThatAnswers(b *testing.B) {
	for name, c := range map[string]qemu.Config{
		"start/memory": config(b), "start/disk": config(b, onDisk(b)),
		"snapshot/memory": config(b, withSnapshot), "snapshot/disk": config(b, onDisk(b), withSnapshot),
	} {
		b.Run(name, func(b *testing.B) {
			p := open(b, c)
			if c.Snapshot {
				destroy(b, p, create(b, p).id)
			}
			for b.Loop() {
				g := create(b, p)
				g.healthy(b)
				b.StopTimer()
				destroy(b, p, g.id)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkMemoryOfAMachine measures the memory of a machine on this host. Shared pages count
// proportionally. It starts one machine as a base, and then three more to show the sharing.
func BenchmarkMemoryOfAMachine(b *testing.B) {
	for name, c := range map[string]qemu.Config{"start": config(b), "snapshot": config(b, withSnapshot)} {
		b.Run(name, func(b *testing.B) {
			p := open(b, c)
			for b.Loop() {
				const machines = 3
				var guests [machines]*guest
				for i := range guests {
					guests[i] = create(b, p)
					guests[i].healthy(b)
				}
				total := 0
				for _, g := range guests {
					total += proportional(b, g.data.PID)
				}
				b.ReportMetric(float64(total)/machines/1024, "MiB/machine")
				for _, g := range guests {
					destroy(b, p, g.id)
				}
			}
		})
	}
}

// proportional returns the proportional memory of a process in KiB.
func proportional(tb testing.TB, pid int) int {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	require.NoError(tb, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			kib := 0
			_, err := fmt.Sscan(value, &kib)
			require.NoError(tb, err)
			return kib
		}
	}
	tb.Fatal("no Pss")
	return 0
}
