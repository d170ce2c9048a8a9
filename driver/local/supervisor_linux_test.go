package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/process"
)

// supervisors returns a function that lists the records of supervisors in their order, also those that a
// later record replaced.
func (r *rig) supervisors() func() []driver.Resource {
	var mu sync.Mutex
	var all []driver.Resource
	r.ledger.before = func(res driver.Resource) {
		mu.Lock()
		defer mu.Unlock()
		if res.Kind == "supervisor" {
			all = append(all, res)
		}
	}
	return func() []driver.Resource {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// A transaction without host steps has no supervisor. Host steps that begin at the same time share one:
// only the supervisor on record ends with the transaction.
func TestTheFirstHostStepStartsTheOnlySupervisor(t *testing.T) {
	t.Parallel()
	r := newRig(t, separated())
	supervisors := r.supervisors()
	r.init()
	require.Empty(t, supervisors())
	var all sync.WaitGroup
	namespaces := make([]string, 5)
	for i := range namespaces {
		all.Go(func() { _, namespaces[i] = r.run(sh(fmt.Sprint("step-", i), "readlink /proc/self/ns/pid")) })
	}
	all.Wait()
	require.Len(t, supervisors(), 1)
	require.Len(t, slices.Compact(namespaces), 1, "the steps share a PID namespace")
}

// A delegate that died after the init leaves no supervisor. The next one starts it, with the user that
// the init has chosen.
func TestALaterDelegateStartsTheSupervisor(t *testing.T) {
	t.Parallel()
	r := newRig(t, separated())
	r.init()
	require.NoError(t, r.d.Close())
	var err error
	r.d, err = newDriver(withWorkDir(r.work), withMemoryDir(r.memory), separated())
	require.NoError(t, err)
	supervisors := r.supervisors()
	_, first := r.run(sh("first", "id -u; readlink /proc/self/ns/pid"))
	_, second := r.run(sh("second", "id -u; readlink /proc/self/ns/pid"))
	require.Equal(t, first, second)
	require.Len(t, supervisors(), 1)
}

// A supervisor that could not start leaves nothing, and the next step tries again.
func TestAStepStartsTheSupervisorAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, separated())
	r.init()
	r.ledger.refuse = func(res driver.Resource) error {
		if res.Kind == "supervisor" {
			return errRefused
		}
		return nil
	}
	_, err := r.fail(sh("refused", "true"))
	require.ErrorIs(t, err, errRefused)
	r.ledger.refuse = nil
	ctx, cancel := context.WithCancel(t.Context())
	r.ledger.before = func(res driver.Resource) {
		if res.Kind == "supervisor" {
			cancel()
		}
	}
	_, err = r.d.Execute(ctx, r.env, &driver.Step{Step: sh("cancelled", "true")}, newBuffer(), r.ledger)
	require.ErrorIs(t, err, context.Canceled)
	r.ledger.before = nil
	_, out := r.run(sh("step", "echo runs"))
	require.Equal(t, "runs\n", out)
}

// Without supervisor and control group, a cleanup cannot find a process that hides, and says so. With one
// of them it says nothing.
func TestACleanupSaysThatAProcessMayHaveSurvived(t *testing.T) {
	t.Parallel()
	r := newRig(t, separated())
	r.init()
	r.run(sh("step", "true"))
	ctx, remarks := driver.WithRemarks(t.Context())
	left, err := r.d.Cleanup(ctx, r.ledger.resources())
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, remarks())

	for range 2 {
		left, err = r.d.Cleanup(ctx, []driver.Resource{{Kind: "process", ID: "visibly-fake-marker", Data: []byte(`{"pid":1}`)}})
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.Len(t, remarks(), 1)
	require.Contains(t, remarks()[0], "processes of host steps may have survived")
}

// The end of a supervisor ends all processes of its steps. So a cleanup does not search the machine for them: a
// process outside of the supervisor continues, although it carries the marker of a step.
func TestACleanupWithASupervisorSearchesNoOtherProcesses(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"the supervisor runs": false, "the supervisor was killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, separated(), withGrace(time.Minute))
			r.init()
			r.run(sh("step", "true"))
			steps, supervisors := r.ledger.ofKind("process"), r.ledger.ofKind("supervisor")
			require.Len(t, steps, 1)
			require.Len(t, supervisors, 1)
			marked := exec.CommandContext(t.Context(), "cat")
			marked.Env = []string{process.MarkerVariable + "=" + steps[0].ID}
			in, err := marked.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, marked.Start())
			if killed {
				var record process.Record
				require.NoError(t, json.Unmarshal(supervisors[0].Data, &record))
				require.NoError(t, record.Destroy(t.Context().Done()))
			}
			left, err := r.d.Cleanup(t.Context(), r.ledger.resources())
			require.NoError(t, err)
			require.Empty(t, left)
			require.NoError(t, in.Close())
			require.NoError(t, marked.Wait(), "the cleanup has ended a process that is not in the supervisor")
		})
	}
}
