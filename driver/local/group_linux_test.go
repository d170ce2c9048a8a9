package local_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
)

// sequenceLedger notes which records are durable, in their order.
type sequenceLedger struct {
	ledger
	durable, volatile []string // kinds since the last durable record; not safe for concurrent use
}

func (l *sequenceLedger) Record(ctx context.Context, r driver.Resource) error {
	if r.Volatile {
		l.volatile = append(l.volatile, r.Kind)
	} else {
		l.durable, l.volatile = append(append(l.durable, l.volatile...), r.Kind), nil
	}
	return l.ledger.Record(ctx, r)
}

// Rule T2: the record of the control group is durable before it contains a process. So a host step
// does not wait for the disk, although its record still comes first.
func TestProcessesAreInAGroupWithADurableRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := &sequenceLedger{}
	require.NoError(t, r.d.Init(t.Context(), r.env, l))
	r.ledger = &l.ledger
	groups := r.ledger.ofKind("control-group")
	if len(groups) == 0 {
		testbed.Unavailable(t, "control groups", "none may be made here")
	}
	require.Equal(t, []string{"control-group", "directory"}, l.durable)
	require.Equal(t, []string{"directory"}, l.volatile, "the one in memory ends with the machine")
	require.DirExists(t, groups[0].ID)

	l.before = func(res driver.Resource) {
		entries, err := filepath.Glob(filepath.Join(groups[0].ID, "dlite-*"))
		require.NoError(t, err)
		require.Empty(t, entries, "the %s is there before its record", res.Kind)
	}
	out := newBuffer()
	_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: sh("step", "cat /proc/self/cgroup")}, out, l)
	require.NoError(t, err)
	require.Contains(t, out.String(), "/"+filepath.Base(groups[0].ID)+"/")
	require.Equal(t, []string{"directory", "process"}, l.volatile)
	require.Len(t, l.durable, 2)

	// The control group is gone, for example after an upgrade of the delegate's service. The step gets
	// its own control group and a durable record.
	l.before = nil
	require.NoError(t, os.Remove(groups[0].ID))
	out = newBuffer()
	_, err = r.d.Execute(t.Context(), r.env, &driver.Step{Step: sh("step", "cat /proc/self/cgroup")}, out, l)
	require.NoError(t, err)
	require.False(t, strings.Contains(out.String(), "/"+filepath.Base(groups[0].ID)+"/"))
	require.Equal(t, []string{"process", "process"}, l.durable[3:])
}

// Rule T2: the record of the control group is enough to end all processes in it.
func TestTheRecordOfTheGroupEndsAllProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	groups := r.ledger.ofKind("control-group")
	if len(groups) == 0 {
		testbed.Unavailable(t, "control groups", "none may be made here")
	}
	script, tag := escape(r, "sleep 600")
	r.detach(sh("service", "echo up; "+script)).waitFor(t, "escaped\n")
	requireRunning(t, tag)
	left, err := r.d.Cleanup(t.Context(), groups)
	require.NoError(t, err)
	require.Empty(t, left)
	requireGone(t, r, tag)
	require.NoDirExists(t, groups[0].ID)
}
